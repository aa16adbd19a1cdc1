"""The formats of other libraries: importers and exporters of plans."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InvalidArgumentError, NarrowcastError, UnsupportedError
from ..dsl.sites import Site
from ..model import PlanModel
from . import msccl_xml, mscclpp_json
from .json_document import load
from .limits import exceeded_limits
from .refusal import Refusal

__all__ = ["FORMATS", "exceeded_limits", "read", "recognize", "write"]

#: Written: the library's own form, and those of MSCCL (MSCCLang, TACCL, TE-CCL, RCCL) and MSCCL++ 0.8 and later. The
#: schema of earlier versions of MSCCL++ is only read.
FORMATS = ("json", "msccl_xml", "mscclpp_json")


def recognize(data: bytes) -> str | None:
    """The name of the format that a document seems to be in, or None if it does not look like a plan.

    A few words decide. For choosing among files: `read` says what is wrong with a document.
    """
    if _is_xml(data):
        return "msccl_xml" if b"<algo" in data else None
    if b'"narrowcast_plan"' in data:
        return "json"
    return "mscclpp_json" if b'"gpus"' in data and b'"threadblocks"' in data else None


def _is_xml(data: bytes) -> bool:
    return data.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n").startswith(b"<")


def read(data: bytes, name: str = "", depth: int | None = None) -> PlanModel:
    """The plan of a document of any of the formats, which its content shows.

    `name` is the document's name, for errors. `depth` is the number of messages in flight on a connection of MSCCL; by
    default that of the document's protocol. Raises InvalidArgumentError with the line or the path of a fault, and
    UnsupportedError for valid documents that are not plans of operations of the library.
    """
    try:
        return _read(data, depth)
    except NarrowcastError as error:
        raise type(error)(f"{name}: {error}" if name else str(error)) from None


def _read(data: bytes, depth: int | None) -> PlanModel:
    if _is_xml(data):
        return msccl_xml.read(data, depth)
    document = load(data)
    if "narrowcast_plan" in document:
        return PlanModel.from_json(data)
    if "gpus" in document:
        return mscclpp_json.read_document(document)
    raise InvalidArgumentError("this is not a plan: it is not XML, and has neither narrowcast_plan nor gpus")


def write(plan: PlanModel, form: str, site_of: Callable[[int], Site | None] | None = None) -> str:
    """The plan in one of FORMATS.

    site_of: the line of a step with an origin, for errors.

    Raises UnsupportedError, with the rank, group, step and line, for what the format cannot express. `exceeded_limits`
    says what the libraries that read the format have no room for.
    """
    try:
        return _write(plan, form)
    except Refusal as refusal:
        site = None if site_of is None else site_of(refusal.origin)
        if site is None:
            raise
        raise UnsupportedError(f"{refusal.where} ({site}): {refusal.message}") from None


def _write(plan: PlanModel, form: str) -> str:
    if form == "json":
        return plan.to_json() + "\n"
    if form == "msccl_xml":
        return msccl_xml.write(plan)
    if form == "mscclpp_json":
        return mscclpp_json.write(plan)
    raise InvalidArgumentError(f"{form!r} is not a format of plans ({', '.join(FORMATS)})")
