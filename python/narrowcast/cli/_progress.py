"""The progress bar of files. Imported only when it is shown, because rich takes long to import."""

from __future__ import annotations

from rich import progress
from rich.console import Console
from rich.text import Text

from .._files.display import bytes_text


class Progress(progress.Progress):
    """A bar of bytes on standard error, which disappears at the end."""

    def __init__(self) -> None:
        super().__init__(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True),
            _Speed(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )


class _Speed(progress.ProgressColumn):
    """Bytes per second, in the units of all other sizes."""

    def render(self, task: progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{bytes_text(speed)}/s", style="progress.data.speed")
