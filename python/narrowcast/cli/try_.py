"""`try`: compares a command's step times with NCCL alone and with Narrowcast."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from .._dropin import nccl_search, preload
from .._files.atomic import check_writable, write_file
from .._files.display import printable
from .._native.settings import PREFIX, unknown, unknown_message
from .._try import profiles, trial, verdict
from .._try.profiles import NCCL, Profile
from .._try.trial import Measured, Options, Trial, TrialError
from ._common import BadUse, print_error, print_json
from .run import checked_config
from .try_report import print_report, verdict_text

# Variables that would override the settings of profiles.
_OVERRIDING = ("CODEC", "CONFIG", "MAX_CTAS", "OFF", "RECORD", "TAKE")


def try_(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments.")],
    steps: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"Stop each run after this many steps; 0: let it end. Default: {trial.DEFAULT_STEPS}, and 5 seconds.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="At most this number of runs with each profile; fewer if the verdict is clear.")
    ] = 8,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",  # some versions of Typer would take the name from metavar
            metavar="PROFILE",
            help=f"{', '.join(profiles.BUILT_IN)}, or a settings file; repeatable. "
            f"Default: {', '.join(profiles.DEFAULT)}.",
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Compare the times of whole runs, for programs without steps.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Kill a run that takes longer.")] = 600,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.toml", help="Write the best settings, for run --config."),
    ] = None,
    nccl: Annotated[Path | None, typer.Option(metavar="PATH", help="The real libnccl.so.2.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not report each run.")] = False,
) -> None:
    """Find out whether Narrowcast makes a command faster: run it with NCCL alone and with profiles, and compare steps.

    Runs alternate. A step is the period of the calls of a communicator, or the time between two calls of
    narrowcast.mark_step(). All processes of a run are ended after enough steps.
    """
    if output is not None:
        check_writable(output)
    chosen = _profiles(profile or list(profiles.DEFAULT))
    for name in _OVERRIDING:
        if os.environ.get(f"{PREFIX}{name}"):
            raise BadUse(f"{PREFIX}{name} is set, which overrides profiles: unset it, or use --profile FILE.toml")
    for name in unknown(os.environ):
        warnings.warn(unknown_message(name), stacklevel=1)
    base = dict(os.environ)
    if nccl is not None:
        base[nccl_search.SETTING] = str(nccl.absolute())
    real = preload.real_nccl(base, nccl_search.SETTING if nccl is None else "--nccl")
    options = Options(
        command=command,
        environment=preload.environment(base, library=preload.drop_in(), nccl=real, settings={}),
        steps=steps,
        is_whole=whole,
        rounds=rounds,
        timeout_seconds=timeout,
    )
    count = 0

    def report(name: str, run: Measured) -> None:
        nonlocal count
        count += 1
        if not quiet:
            stopped = ", then stopped" if run.stopped else ""
            steps_text = "1 step" if run.steps == 1 else f"{run.steps} steps"
            text = f"run {count}, {name}: {1e3 * run.seconds:.3f} ms a step, {steps_text}{stopped}"
            print(f"narrowcast: {text}", file=sys.stderr, flush=True)

    try:
        tried = trial.run(options, chosen, report)
    except TrialError as error:
        _print_lines(error)
        raise
    for failure in tried.failed.values():
        _print_lines(failure)
        print_error(str(failure))
    found = tried.verdict()
    if output is not None:
        write_file(output, _best_settings(tried, found).encode())
    if as_json:
        print_json(_as_json(command, tried, found))
    else:
        print_report(tried, found)
    if tried.failed:
        raise typer.Exit(1)


def _profiles(names: list[str]) -> list[Profile]:
    found: dict[str, Profile] = {}
    for name in names:
        if name in profiles.BUILT_IN:
            found[name] = profiles.BUILT_IN[name]
        elif name.endswith(".toml"):
            path = checked_config(Path(name), "--profile")
            found[name] = Profile(name, {}, path)
        else:
            known = ", ".join(profiles.BUILT_IN)
            raise BadUse(
                f"--profile {name}: unknown profile (known: {known}, or a file with a name that ends in .toml)"
            )
    return list(found.values())


def _best_settings(tried: Trial, found: verdict.Verdict) -> str:
    best = profiles.OFF if found.best is None else tried.profiles[found.best]
    return best.toml(printable(f"narrowcast try: {verdict_text(found)}"))


def _print_lines(error: TrialError) -> None:
    """The end of the output of a command that has failed."""
    for line in error.lines:
        print(printable(line), file=sys.stderr)


def _as_json(command: list[str], tried: Trial, found: verdict.Verdict) -> dict[str, Any]:
    def of(name: str, settings: Profile) -> dict[str, Any]:
        failure, difference = tried.failed.get(name), found.differences.get(name)
        return {
            "name": name,
            "settings": settings.settings,
            "file": None if settings.file is None else str(settings.file),
            "failure": None if failure is None else str(failure),
            "runs": [run.as_json() for run in tried.runs(name)],
            "step_seconds": tried.median_seconds(name),
            "difference": None if difference is None else {**vars(difference), "answer": difference.answer.value},
        }

    return {
        "command": command,
        "step": tried.step,
        "clock": "gpu" if tried.is_on_gpu else "host",
        "verdict": {"answer": found.answer.value, "best": found.best or NCCL, "text": verdict_text(found)},
        "profiles": [of(NCCL, profiles.NCCL_ALONE), *(of(name, one) for name, one in tried.profiles.items())],
    }
