"""The types of fields whose values have a unit, a least value or a form of their own."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

Seconds = Annotated[
    float,
    Meta(
        ge=0,
        description="Seconds as a number (fractions too), or text: `500ms`, `5s`, `2m`, `1h30m`.",
        extra={"unit": "duration"},
        extra_json_schema={"pattern": r"^([0-9.]+|([0-9.]+ ?(ns|us|µs|ms|s|m|h))+)$|\$\{"},
    ),
]
Bytes = Annotated[
    int,
    Meta(
        ge=0,
        description="Bytes as a number, or text such as `512MiB`, `8GiB`, `8GB`.",
        extra={"unit": "size"},
        extra_json_schema={"pattern": r"^[0-9.]+ ?([KMGTkmgt]i?)?[Bb]?$|\$\{"},
    ),
]
Count = Annotated[int, Meta(ge=0)]
AtLeast1 = Annotated[int, Meta(ge=1, extra={"raise": True})]
AtLeast15 = Annotated[int, Meta(ge=15, extra={"raise": True})]
"""What is smaller is raised to the least, not refused."""
CommaSeparated = Annotated[
    tuple[str, ...], Meta(extra={"unit": "commas"}, extra_json_schema={"writtenAs": "string"})
]
"""One text with commas in the file, a tuple here."""
Modality = Literal["text", "audio", "image"]
