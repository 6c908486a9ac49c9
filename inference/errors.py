"""Every error that `inference` raises on purpose: one small tree, each class with a stable code.

`code` is part of the interface (command output, HTTP error bodies); `str(error)` says what to do about it.
"""


class InferenceError(Exception):
    """Base of all errors of this package; caught only at the edges (commands, views, tasks)."""

    code = "inference_error"


# --- model files ------------------------------------------------------------------------------------------------------
class GGUFError(InferenceError):
    """A model file that cannot be read or used."""

    code = "gguf_error"


class NotGGUF(GGUFError):
    """The file is not a GGUF that this program reads (wrong magic, version, byte order or a broken header)."""

    code = "not_gguf"


class Truncated(GGUFError):
    """The file ends before its header, or before the data that its header announces."""

    code = "truncated"


class MissingPart(GGUFError):
    """A split set lacks one of its files."""

    code = "missing_part"


class DenseModel(GGUFError):
    """The model has no routed experts, so there is nothing to shard."""

    code = "dense_model"


class UnknownType(GGUFError):
    """A tensor has a ggml type that this version does not know."""

    code = "unknown_type"


class RangeOutside(GGUFError):
    """A layer or an expert range that the model does not have."""

    code = "range_outside"


class NoStages(GGUFError):
    """A model whose layers cannot be spread over several hosts; the message says why."""

    code = "no_stages"


class CutRefused(GGUFError):
    """A layer range that cannot be a stage; the message names the reason and the nearest range that can."""

    code = "cut_refused"


class FileUnreadable(GGUFError):
    """A model file that does not exist, or that the system does not let us read."""

    code = "file_unreadable"


class FileUnwritable(GGUFError):
    """A slice cannot be written where it was asked for."""

    code = "file_unwritable"


class UnknownBuild(InferenceError):
    """A build that this server does not hold."""

    code = "unknown_build"


class OutsideFolders(GGUFError):
    """A path that leads out of the folders whose models may be served."""

    code = "outside_folders"


class NotASlice(GGUFError):
    """A GGUF that is not an expert slice, or a slice that contradicts itself."""

    code = "not_a_slice"


class NotAStage(GGUFError):
    """A GGUF that is no stage of a model."""

    code = "not_a_stage"


class BadManifest(GGUFError):
    """A slice manifest that cannot be used."""

    code = "bad_manifest"


# --- generating -------------------------------------------------------------------------------------------------------
class BadParameter(InferenceError):
    """A request with a value that cannot be used; the message names the parameter and the allowed range."""

    code = "bad_parameter"


class PromptTooLong(InferenceError):
    """The prompt leaves no room for an answer in the context; carries both numbers of tokens."""

    code = "prompt_too_long"

    def __init__(self, prompt_tokens: int, limit: int) -> None:
        super().__init__(f"the prompt has {prompt_tokens} tokens, at most {limit} fit: shorten it")
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class QueueFull(InferenceError):
    """Too many requests wait already; try again later."""

    code = "queue_full"


class Draining(InferenceError):
    """The engine is stopping, or was not started, and takes no new request."""

    code = "draining"


# --- llama.cpp --------------------------------------------------------------------------------------------------------
class ModelNotLoaded(InferenceError):
    """llama.cpp refused the model file; the message holds its reason."""

    code = "model_not_loaded"


class ContextNotMade(InferenceError):
    """llama.cpp made no context (most often: not enough memory for the sequences and their length)."""

    code = "context_not_made"


class TokenizeFailed(InferenceError):
    """llama.cpp could not turn a text into tokens."""

    code = "tokenize_failed"


class BadTrace(InferenceError):
    """A trace file that cannot be read, or that belongs to another model file."""

    code = "bad_trace"
