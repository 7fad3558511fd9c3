"""One task in a process of its own: `python -m torch_piecewise.bench.worker REQUEST RESULT`.

REQUEST and RESULT are JSON files, since what a task prints to the terminal is not ours alone.
`ask` is the other side of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch_piecewise.bench.compile_time import compile_once
from torch_piecewise.bench.harness import Record, VariantResult, measure
from torch_piecewise.bench.nests import Heaviest, NestTimes
from torch_piecewise.bench.plans import PlanFacts
from torch_piecewise.bench.settings import Settings, Task


class WorkerFailed(RuntimeError):
    """A task's process ended without a result; the message has the last it said."""


def ask_measure(task: Task, settings: Settings) -> Record:
    """`harness.measure` in a fresh process."""
    return record_from_json(_ask(task, settings))


def ask_compile(task: Task, variant: str, settings: Settings) -> float:
    """`compile_once` in a fresh process with empty caches, in seconds."""
    with tempfile.TemporaryDirectory(prefix="piecewise-cold-") as empty:
        cold = {"TORCHINDUCTOR_CACHE_DIR": empty}
        return float(_ask(task, settings, variant=variant, environment=cold)["seconds"])


def record_from_json(raw: dict[str, Any]) -> Record:
    plan = raw.pop("plan")
    nests = tuple(NestTimes(**n) for n in raw.pop("nests"))
    heavy = raw.pop("heaviest")
    heaviest = Heaviest(**{**heavy, "lines": tuple(heavy["lines"])}) if heavy else None
    results = [VariantResult(**{**v, "samples": tuple(v["samples"])}) for v in raw.pop("variants")]
    facts = PlanFacts(**plan) if plan else None
    return Record(**raw, variants=tuple(results), plan=facts, nests=nests, heaviest=heaviest)


def _ask(
    task: Task,
    settings: Settings,
    variant: str = "",
    environment: dict[str, str] | None = None,
) -> Any:
    workers = {"TORCHINDUCTOR_COMPILE_THREADS": str(settings.compile_workers)}
    request = {
        "task": dataclasses.asdict(task),
        "settings": settings.to_json(),
        "variant": variant,
    }
    with tempfile.TemporaryDirectory(prefix="piecewise-bench-") as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(request))
        command = [sys.executable, "-m", __name__, str(asked), str(answered)]
        ended = subprocess.run(
            command,
            env={**os.environ, **workers, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode or not answered.exists():
            raise WorkerFailed(f"exit status {ended.returncode}: {_last_line(ended.stderr)}")
        return json.loads(answered.read_text())


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def main(asked: str, answered: str) -> None:
    request = json.loads(Path(asked).read_text())
    task, settings = Task(**request["task"]), Settings(**request["settings"])
    result: dict[str, Any]
    if request["variant"]:
        result = {"seconds": compile_once(task, request["variant"], settings)}
    else:
        result = dataclasses.asdict(measure(task, settings))
    Path(answered).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
