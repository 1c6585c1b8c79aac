"""An agent's tool that writes through a guard.

The tool has the shape that OpenAI and Claude ask for: a name, a schema, and a
function from the model's arguments to a text. It is plain Python and calls no
model: the calls below are what a model would send.

An agent holds a lease on its task. If it was presumed dead and replaced, its tool
still runs when it wakes up. The guarded file then refuses the write, and the
model is told to stop.

    CROFT_STORE=/tmp/croft python3 agent_tool.py
"""

import json
import os
import subprocess

import croft

TOOL = {
    "name": "save_report",
    "description": "Replaces the report.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def save_report(lease: croft.Lease, text: str) -> str:
    lease.write("report.txt", text)
    return "saved"


def answer(lease: croft.Lease, call: dict[str, str]) -> dict[str, object]:
    """Runs the call of a model, and makes the message that goes back to it."""
    try:
        said, failed = save_report(lease, **json.loads(call["arguments"])), False
    except (croft.Stale, croft.LeaseLost) as e:
        said, failed = f"Stop: this task has a new owner. ({type(e).__name__})", True
    except croft.Unknown:
        said, failed = "Nobody knows whether it was saved. Call the tool again.", True
    return {"type": "tool_result", "tool_use_id": call["id"], "content": said, "is_error": failed}


def main() -> None:
    old = croft.Client(owner="agent 1").lease("tasks/report", ttl=60).acquire()
    print(answer(old, {"id": "1", "arguments": '{"text": "by agent 1"}'})["content"])
    # Somebody takes the task from the first agent, which does not know it yet.
    program = os.environ.get("CROFT_BIN") or "croft"
    subprocess.run([program, "takeover", "tasks/report", "--note", "it hangs", "--owner", "agent 2"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(answer(old, {"id": "2", "arguments": '{"text": "late, by agent 1"}'})["content"])
    with open("report.txt") as f:
        print(f"report.txt: {f.read()}")


if __name__ == "__main__":
    main()
