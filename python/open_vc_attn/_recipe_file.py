# SPDX-License-Identifier: BSD-3-Clause
"""Recipes as files of JSON that people can read and change."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Collection
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from . import _openvc
from ._numerics import NAMES, Numerics
from ._safetensors import unique_names, write_atomically

FORMAT = "open_vc_attn recipe"
SCHEMA = 1
_LINE = 100  # characters
_FIELDS = ("format", "schema", "contract_version", "model", "heads", "head_dim", "about", "layers")
_LAYER_FIELDS = ("layer", "parts")
_PART_FIELDS = ("noise", "numerics", "extra_steps", "error_percent", "held_out_percent")
_MEASURES = _PART_FIELDS[2:]


@lru_cache(maxsize=1)
def contract_version() -> int:
    """Of the numeric contract of this library."""
    return int(_openvc.info()["contract_version"])


def save(path: str | os.PathLike[str], recipe: Any) -> None:
    """Writes Recipe.save()'s file."""
    write_atomically(Path(path), [_text(_content(recipe)).encode(), b"\n"])


def _text(value: Any, indent: str = "") -> str:
    """JSON with a line for each item, but for what fits into one line altogether."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, (dict, list)) or len(indent) + len(line) <= _LINE:
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        items = [
            f"{json.dumps(key, ensure_ascii=False)}: {_text(x, inner)}" for key, x in value.items()
        ]
        begin, end = "{", "}"
    else:
        items = [_text(x, inner) for x in value]
        begin, end = "[", "]"
    lines = ",\n".join(inner + item for item in items)
    return f"{begin}\n{lines}\n{indent}{end}"


def _content(recipe: Any) -> dict[str, Any]:
    values = {
        "format": FORMAT,
        "schema": SCHEMA,
        "contract_version": contract_version(),
        "model": recipe.model,
        "heads": recipe.heads,
        "head_dim": recipe.head_dim,
        "about": dict(recipe.about),
        "layers": [
            {"layer": layer, "parts": [_part_content(part) for part in parts]}
            for layer, parts in recipe.layers.items()
        ],
    }
    return {name: values[name] for name in _FIELDS}


def _part_content(part: Any) -> dict[str, Any]:
    # JSON has no infinity: null ends a range that has no end.
    noise = [part.low, part.high if math.isfinite(part.high) else None]
    return {
        "noise": noise,
        "numerics": dataclasses.asdict(part.numerics),
        **{name: getattr(part, name) for name in _MEASURES},
    }


def load(path: str | os.PathLike[str], recipe: Callable[..., Any], part: Callable[..., Any]) -> Any:
    """Reads a file of save(); `recipe` and `part` are the classes that it holds."""
    name = os.fspath(path)
    try:
        content = json.loads(
            Path(path).read_bytes().decode(),
            object_pairs_hook=unique_names,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{name}: found no JSON ({error}); expected a recipe. Write one with open-vc-attn plan."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(
            f"{name}: found no 'format': {FORMAT!r}; expected a recipe. Write one with "
            "open-vc-attn plan."
        )
    # Before all other fields, which another version may call otherwise.
    for key, expected in (("schema", SCHEMA), ("contract_version", contract_version())):
        if type(content.get(key)) is not int or content[key] != expected:
            raise ValueError(
                f"{name}: found {key} {content.get(key)!r}; expected {expected}, that of this "
                "library. Plan again with its open-vc-attn plan."
            )
    _require_fields(name, content, _FIELDS)
    if not isinstance(content["about"], dict):
        raise ValueError(f"{name}: found 'about' that is no object; expected one. Write {{}}.")
    try:
        return recipe(
            model=content["model"],
            heads=content["heads"],
            head_dim=content["head_dim"],
            about=content["about"],
            layers=_layers(content["layers"], part),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def _layers(entries: Any, part: Callable[..., Any]) -> dict[int, Any]:
    layers: dict[int, Any] = {}
    for entry in _list("layers", entries):
        _require_fields("layers", entry, _LAYER_FIELDS)
        layer = entry["layer"]
        if type(layer) is not int:
            raise ValueError(f"layer: found {layer!r}; expected a whole number. Correct it.")
        if layer in layers:
            raise ValueError(f"layer: found {layer} twice; expected it once. Remove one of them.")
        try:
            layers[layer] = [_part(item, part) for item in _list("parts", entry["parts"])]
        except (TypeError, ValueError) as error:
            raise ValueError(f"layer {layer}: {error}") from None
    return layers


def _part(item: Any, part: Callable[..., Any]) -> Any:
    _require_fields("parts", item, _PART_FIELDS)
    noise, numerics = item["noise"], item["numerics"]
    if not (isinstance(noise, list) and len(noise) == 2):
        raise ValueError(
            f"noise: found {noise!r}; expected two noise levels, from and to. Write [0.0, null] "
            "for all."
        )
    # All of them: a default of another version must not fill a gap in silence.
    _require_fields("numerics", numerics, NAMES)
    return part(
        Numerics(**numerics),
        noise[0],
        math.inf if noise[1] is None else noise[1],
        **{name: item[name] for name in _MEASURES},
    )


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name}: found {type(value).__name__}; expected a list. Correct it.")
    return value


def _require_fields(where: str, content: Any, names: Collection[str]) -> None:
    if not isinstance(content, dict):
        raise ValueError(
            f"{where}: found {type(content).__name__}; expected an object with "
            f"{', '.join(names)}. Correct it."
        )
    missing = [name for name in names if name not in content]
    unknown = [name for name in content if name not in names]
    if missing or unknown:
        found = [f"no {name!r}" for name in missing] + [f"an unknown {name!r}" for name in unknown]
        raise ValueError(
            f"{where}: found {', '.join(found)}; expected {', '.join(names)}. Correct it."
        )


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"the number {text}")
