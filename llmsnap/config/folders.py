"""Models in a folder of GGUF files, laid out as llama-server's `--models-dir` expects it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmsnap.config.generated import FoundModel, config_text
from llmsnap.config.parts import parts_of, split_of
from llmsnap.config.quantities import rough_size
from llmsnap.errors import ConfigError

_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f]|\$\{")
"""What can't be in a command of a configuration."""


@dataclass(frozen=True, slots=True)
class _File:
    """The first file of a model, and what it is called without its number and ending."""

    path: Path
    stem: str
    is_whole: bool


def folder_text(folder: Path) -> str:
    """Return a configuration of the models in `folder`. Raises ConfigError when it has none."""
    models = models_in(folder)
    if not models:
        raise ConfigError(f"{folder}: no .gguf file in there or below; put models into it")
    return config_text(models, [f"The models in {folder}."])


def models_in(folder: Path) -> list[FoundModel]:
    """Return the models in `folder` and below it; those that lack a part are left out.

    A model alone in a folder of its own goes by the folder's name, others by their file's. A
    projector (`mmproj…gguf`) belongs to the models beside it. Raises ConfigError.
    """
    top = folder.resolve() if ".." in folder.parts else folder.absolute()
    try:
        found = [one for at, names in _folders(top) for one in _models_at(top, at, names)]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{folder}: can't be read: {reason}; check the path") from None
    counts = Counter(name for name, _, _ in found)
    return [
        FoundModel(
            name=name if counts[name] == 1 else _unique_name(top, file),
            options=_options(file.path, projector),
            notes=(_size_note(file.path),),
        )
        for name, file, projector in found
    ]


def _folders(top: Path) -> Iterator[tuple[Path, Sequence[str]]]:
    for at, below, names in os.walk(top, onerror=_raise_first(top)):
        below[:] = sorted(name for name in below if not name.startswith("."))
        models = (name for name in names if name.endswith(".gguf"))
        # Not links that lead nowhere, as caches have them, nor pipes.
        yield Path(at), sorted(name for name in models if os.path.isfile(os.path.join(at, name)))


def _raise_first(top: Path) -> Callable[[OSError], None]:
    """Return what raises the error of `top` itself; what can't be read below it is no model."""

    def raise_it(error: OSError) -> None:
        if error.filename is not None and Path(error.filename) == top:
            raise error

    return raise_it


def _models_at(
    top: Path, at: Path, names: Sequence[str]
) -> Iterator[tuple[str, _File, Path | None]]:
    """Yield name, file and projector of each model right in the folder `at`."""
    fit = [name for name in names if not _UNFIT.search(str(at / name))]
    projectors = [name for name in fit if name.lower().startswith("mmproj")]
    files = [file for name in fit if name not in projectors if (file := _first(at / name, fit))]
    is_top = at == top
    for file in files:
        if not file.is_whole:
            continue
        name = at.name if len(files) == 1 and not is_top else file.stem
        is_sure = not is_top or len(files) == 1
        beside = [one for one in projectors if is_sure or _are_kin(one, file.stem)]
        yield name, file, at / beside[0] if beside else None


def _are_kin(projector: str, stem: str) -> bool:
    """Whether the name of a projector begins as that of a model does, or the other way round."""
    own = Path(projector).stem[len("mmproj") :].strip("-_.")
    return bool(own) and (stem.startswith(own) or own.startswith(stem))


def _first(path: Path, names: Sequence[str]) -> _File | None:
    """Return the model that `path` begins; None for its later parts."""
    split = split_of(str(path))
    if split is None:
        return _File(path, path.stem, is_whole=True)
    if str(path) != split.paths[0]:
        return None
    wanted = {Path(part).name for part in split.paths}
    return _File(path, Path(split.stem).name, is_whole=wanted <= {*names})


def _unique_name(top: Path, file: _File) -> str:
    below = file.path.relative_to(top).parent
    return str(below / file.stem) if str(below) != "." else file.stem


def _options(path: Path, projector: Path | None) -> tuple[tuple[str, ...], ...]:
    options: list[tuple[str, ...]] = [("--model", str(path))]
    if projector is not None:
        options.append(("--mmproj", str(projector)))
    return tuple(options)


def _size_note(path: Path) -> str:
    parts = parts_of(str(path))
    try:
        said = rough_size(sum(Path(part).stat().st_size for part in parts))
    except OSError:  # it has gone since it was found; who asks for it is told so
        said = "its file is gone"
    return said if len(parts) == 1 else f"{said} in {len(parts)} files"
