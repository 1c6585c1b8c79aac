"""The recipes in the folder examples/python."""

from __future__ import annotations

import os

from .support import HERE, Case

RECIPES = os.path.join(os.path.dirname(HERE), "..", "..", "examples", "python")

SAY = {
    "agent_tool": "saved\nStop: this task has a new owner. (LeaseLost)\nreport.txt: by agent 1\n",
    "apscheduler_job": "done 1 time(s)\n",
    "celery_task": "Retry\nbooked\nthe late worker is refused\n[(1,)]\n",
    "langgraph_node": "page 1 of 3\npage 2 of 3\ncrashed\npage 3 of 3\n{'summary': '3 pages'}\nTrue\n",
}


class Recipes(Case):
    def test_they_do_as_they_say(self) -> None:
        self.assertEqual(sorted(os.listdir(RECIPES)), sorted(f"{name}.py" for name in SAY))
        running = {}
        for name in SAY:
            os.mkdir(self.path(name))
            with open(os.path.join(RECIPES, f"{name}.py")) as f:
                self.assertIn(" plain Python", f.read())
            code = f"import runpy; runpy.run_path({os.path.join(RECIPES, name + '.py')!r}, run_name='__main__')"
            running[name] = self.python(
                f"import os; os.chdir({name!r}); {code}", CROFT_STORE=self.path(f"{name}-store"))
        for name, program in running.items():
            with self.subTest(name):
                self.assertEqual(program.communicate()[0], SAY[name])
                self.assertEqual(program.returncode, 0)
