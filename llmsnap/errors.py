"""Every error that llmsnap raises on purpose, with its HTTP status and code.

An error is raised where the fact is known and rendered once, in `web.envelope`. Messages are lower
case, say what and which, quote user input, and end with the way out when there is one.
"""

from __future__ import annotations

from typing import ClassVar


class LlmsnapError(Exception):
    """Base of the tree. `status` and `code` say how HTTP clients see it."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    retry_after_s: float | None = None
    """Seconds after which the same request may go better; becomes `Retry-After`."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s

    @property
    def message(self) -> str:
        """What went wrong, for people."""
        return str(self)

    @property
    def type(self) -> str:
        """The `type` of OpenAI's error object that goes with `status`."""
        match self.status:
            case 401 | 403:
                return "authentication_error"
            case 429:
                return "rate_limit_error"
            case status if status >= 500:
                return "server_error"
            case _:
                return "invalid_request_error"


class ConfigError(LlmsnapError):
    """The configuration can't be used; the message names file, line, key path and remedy."""


class ModelFileError(LlmsnapError):
    """A model's file can't be understood; the model may still run."""


class ModelFileCutOff(ModelFileError):
    """A model's file ends before its weights do, as while it is fetched; no server takes it."""


class ListenFailed(LlmsnapError):
    """The proxy can't listen where it should; ends the command line."""


class BadRequest(LlmsnapError):
    """The request can't be understood."""

    status = 400
    code = "bad_request"


class Unauthorized(LlmsnapError):
    """No valid API key came with the request."""

    status = 401
    code = "unauthorized"


class Forbidden(LlmsnapError):
    """The request is understood and refused, whatever key comes with it."""

    status = 403
    code = "forbidden"


class NotFound(LlmsnapError):
    """No such path, or nothing there."""

    status = 404
    code = "not_found"


class ModelNotFound(NotFound):
    """No configured model or alias has the requested name, or no name was given."""


class MethodNotAllowed(LlmsnapError):
    """The path exists, but not for this method."""

    status = 405
    code = "invalid_request"


class RequestStalled(LlmsnapError):
    """The client stopped sending in the middle of its request."""

    status = 408
    code = "invalid_request"


class Conflict(LlmsnapError):
    """The model is in a state that can't serve this without loading or disturbing it."""

    status = 409
    code = "conflict"


class LoopDetected(LlmsnapError):
    """The request has passed this proxy before: peers list each other's models in a circle."""

    status = 508
    code = "loop_detected"


class HeadersTooLarge(LlmsnapError):
    """The request line or the headers are longer than any client needs."""

    status = 431
    code = "invalid_request"


class BodyTooLarge(LlmsnapError):
    """The request body is over `maxBody`."""

    status = 413
    code = "invalid_request"


class ConcurrencyLimited(LlmsnapError):
    """As many requests as `concurrencyLimit` allows are already with the model."""

    status = 429
    code = "concurrency_limit"
    retry_after_s = 1.0


class CodingNotImplemented(LlmsnapError):
    """The request's body came in a transfer coding that isn't understood here."""

    status = 501
    code = "not_implemented"


class RequestCancelled(LlmsnapError):
    """An operator ended the request; 499, which clients don't take for a reason to try again."""

    status = 499
    code = "cancelled"


class FilterFailed(LlmsnapError):
    """The filters that the configuration sets can't be applied to this body."""


class BadGateway(LlmsnapError):
    """The upstream failed; the parent of all 502s."""

    status = 502
    code = "bad_gateway"


class StartFailed(BadGateway):
    """The model's process ended, or wasn't ready in time; the message ends with its last lines."""

    retry_after_s = 1.0


class ModelIncomplete(StartFailed):
    """The model's program or one of its files isn't there; it isn't even tried."""

    retry_after_s = 30.0


class PortTaken(StartFailed):
    """Another program listens where the model's server is to; it isn't even tried."""

    retry_after_s = 10.0


class UpstreamRefused(BadGateway):
    """Nothing listens where the model's server should."""

    retry_after_s = 1.0


class UpstreamLost(BadGateway):
    """The model's process or connection went away while it held the request."""

    retry_after_s = 1.0


class GatewayTimeout(LlmsnapError):
    """The upstream didn't answer within a limit that the configuration sets."""

    status = 504
    code = "gateway_timeout"


class ServiceUnavailable(LlmsnapError):
    """Not now, perhaps later; the parent of all 503s."""

    status = 503
    code = "service_unavailable"
    retry_after_s = 5.0


class DoesNotFit(ServiceUnavailable):
    """The model can't fit in memory, even with all others gone."""

    retry_after_s = 60.0


class OutOfMemory(ServiceUnavailable):
    """The model's server ran out of memory twice, although room was made for it."""

    retry_after_s = 30.0


class BackingOff(ServiceUnavailable):
    """The model's last starts failed; it isn't tried again just yet."""


class WaitedTooLong(ServiceUnavailable):
    """The request waited `maxWait` for its model."""


class ModelUnloaded(ServiceUnavailable):
    """An administrator unloaded the model while the request was with it."""


class Released(ServiceUnavailable):
    """All memory was given back for a while."""


class StoreFailed(ServiceUnavailable):
    """The database can't be read now."""


class ShuttingDown(ServiceUnavailable):
    """The proxy is on its way down."""


class SleepFailed(BadGateway):
    """The model's process couldn't be put to sleep; it is ended and starts anew when wanted."""

    retry_after_s = 1.0
    intact: ClassVar[bool] = False
    """Whether the process is as it was before, so that it may be kept."""


class SleepRefused(SleepFailed):
    """Nothing was done to the model's process: it is awake and well, only not asleep."""

    intact = True


class WakeFailed(BadGateway):
    """The model's process couldn't be woken; it is ended and starts anew."""

    retry_after_s = 1.0
    intact: ClassVar[bool] = False
    """Whether the process is as it was before, so that it may be kept."""


class WakeRefused(WakeFailed):
    """Nothing was done to the model's process: it is still asleep and may be woken later."""

    intact = True
