"""A node of a graph, as LangGraph has them: a function from the state to a change
of it. This is plain Python in that shape; it needs no LangGraph.

A run of a graph can be resumed while the first one still works. So the node holds
a lease on its thread. A second run is told, instead of doing the work twice. What
the node has done so far is the lease's checkpoint: a run that takes over after a
crash goes on from there.

    CROFT_STORE=/tmp/croft python3 langgraph_node.py
"""

from typing import Any, Callable

import croft

State = dict[str, Any]
Node = Callable[[croft.Lease, State], State]


def leased(name: str) -> Callable[[Node], Callable[[State], State]]:
    """Makes a node hold the lease on its name in the state's thread."""

    def wrap(node: Node) -> Callable[[State], State]:
        def run(state: State) -> State:
            try:
                with croft.lease(f"threads/{state['thread']}/{name}", ttl=60, stall_after=600) as lease:
                    return node(lease, state)
            except croft.Held as e:
                return {"skipped": f"{name}: {e.owner} is at it"}

        return run

    return wrap


@leased("summarize")
def summarize(lease: croft.Lease, state: State) -> State:
    first = int(lease.checkpoint or b"0")
    for n in range(first, len(state["pages"])):
        if state["pages"][n] == "a crash":
            state["pages"][n] = "c"
            raise RuntimeError("crashed")
        lease.save(str(n + 1).encode())  # progress, and what the next run begins with
        print(f"page {n + 1} of {len(state['pages'])}")
    lease.write(f"{state['thread']}.txt", " ".join(state["pages"]))
    return {"summary": f"{len(state['pages'])} pages"}


def main() -> None:
    state: State = {"thread": "t1", "pages": ["a", "b", "a crash"]}
    try:
        summarize(state)
    except RuntimeError as e:
        print(e)
    print(summarize(state))
    with croft.lease("threads/t1/summarize"):  # another run has it
        print("skipped" in summarize(state))


if __name__ == "__main__":
    main()
