"""ModelRepository: the models that are served, by name and version.

Reading a model takes as long as its file is large, so it is done on a thread; its session belongs to the event loop.
A new version takes the place of the one before when it is ready, and what that one was called for goes on to its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import (
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnavailableError,
    UnimplementedError,
)
from asyncexec.framework.spans import Hook
from asyncexec.graph.graph import Graph
from asyncexec.models.build import initialize
from asyncexec.service.models.config import Parameter, config_in, config_of_load, parse_json
from asyncexec.service.models.ensemble import EnsembleModel, is_ensemble, models_of
from asyncexec.service.models.files import (
    FailedVersion,
    ModelSource,
    ReadModel,
    fingerprint,
    model_folders,
    read_model,
    read_source,
)
from asyncexec.service.models.kinds import make_model
from asyncexec.service.models.model import Model
from asyncexec.service.models.response_cache import ResponseCache
from asyncexec.session.plan_compiler import import_compilers
from asyncexec.session.workers import Cluster

Control: TypeAlias = Literal["none", "explicit", "poll"]

READY, LOADING, UNLOADING, UNAVAILABLE = "READY", "LOADING", "UNLOADING", "UNAVAILABLE"
UNLOADED: Final = "unloaded"
_LOGGER: Final = logging.getLogger("asyncexec.service")


class ModelState(NamedTuple):
    """What is known of a version of a model: READY, LOADING, UNLOADING or UNAVAILABLE, and why; or "", never loaded."""

    name: str
    version: str
    state: str
    reason: str


class ModelRepository:
    """The models that are served.

    Args:
        folder: where models are, as in Triton's repositories; None for no other than *sources*.
        sources: models that are there from the start, by name.
        control: what is loaded: "none", all that is in *folder* at the start; "explicit", what is asked for; "poll",
            what is in *folder*, again when its files change.
        load_at_start: the names of models to load at the start under "explicit", or "*" alone for all.
        poll_s: how often files are looked at.
        allow_python: whether a ``graph.py`` in *folder*, code of whoever runs the service, may be run.
        cache_bytes: how much is kept of the answers of models with ``response_cache``.
        cluster: the workers that nodes of models may ask for that have no cluster of their own; it outlives them.

    Attributes:
        labels: names of versions, of models by their names.
    """

    def __init__(
        self,
        folder: Path | None = None,
        sources: Mapping[str, ModelSource | Graph] | None = None,
        *,
        control: Control = "none",
        load_at_start: tuple[str, ...] = (),
        poll_s: float = 15.0,
        allow_python: bool = False,
        cache_bytes: int = 64 * 2**20,
        cluster: Cluster | None = None,
    ) -> None:
        self._folder = folder
        self._sources = dict(sources or {})
        self._control: Control = control
        self._load_at_start = None if control != "explicit" or load_at_start == ("*",) else load_at_start  # None: all
        self._poll_s = poll_s
        self._allows_python = allow_python
        self._cache = ResponseCache(cache_bytes)
        self._cluster = cluster
        self._models: dict[str, dict[str, Model]] = {}  # the oldest version first
        self._folders: dict[str, Path] = {}
        self._states: dict[str, dict[str, ModelState]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # those in use
        self._loading: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._prints: dict[str, Any] = {}
        self._has_started = False
        self._is_closed = False
        self.labels: dict[str, dict[str, str]] = {}
        self.hooks: Sequence[Hook] = ()  # of the sessions of models that are loaded from now on

    async def start(self) -> None:
        """Load what is there from the start.  A model that cannot be loaded is not ready, and the others are.

        Raises:
            NotFoundError: there is no such folder.
        """
        self._is_closed = False
        task = self._begin(self._load_all(), self._loading)
        try:
            await self._finished(task)
        finally:
            task.cancel()

    async def _load_all(self) -> None:
        await asyncio.to_thread(import_compilers)
        for name, source in self._sources.items():
            await self._try(self._serve(name, [read_source(name, source)]))
        if self._folder is not None:
            self._folders = await asyncio.to_thread(model_folders, self._folder)
            for name in list(self._folders) if self._load_at_start is None else self._load_at_start:
                if name not in self._models:  # else an ensemble has needed it
                    await self._try(self._load(name))
                if name not in self._states:  # it is to be served, so nobody is to call the service ready
                    self._note(name, "", UNAVAILABLE, "model not found in any model repository")
        self._has_started = True
        if self._control == "poll":
            self._begin(self._poll(), self._loading)

    def stop_being_ready(self) -> None:
        """Say that nothing is ready, so that callers go elsewhere; calls are answered until close()."""
        self._has_started = False

    async def close(self) -> None:
        """Serve nothing more; loads are cancelled.  Ends when the calls under way have."""
        self._has_started, self._is_closed = False, True
        while self._loading:  # first, for a load opens models
            for task in self._loading:
                task.cancel()
            await asyncio.gather(*self._loading, return_exceptions=True)
        for name in list(self._models):
            self._retire(name)
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    def model(self, name: str, version: str = "") -> Model:
        """The model called *name*; the newest version of it, if none is given.

        Raises:
            NotFoundError: "Request for unknown model: ..."; UnavailableError: it is not ready.
        """
        versions = self._models.get(name, {})
        found = versions.get(version) if version else next(reversed(versions.values()), None)
        if found is not None:
            return found
        known = self._states.get(name, {})
        if not known:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        if version and version not in known:
            raise NotFoundError(f"Request for unknown model: '{name}' version {version} is not found")
        told = f" version {version}" if version else ""
        raise UnavailableError(f"Request for unknown model: '{name}'{told} is not at ready state")

    def versions(self, name: str) -> list[str]:
        """The versions of *name* that are ready, the oldest first; NotFoundError as of model()."""
        self.model(name)
        return list(self._models[name])

    def models(self) -> list[Model]:
        """All that are ready."""
        return [model for versions in self._models.values() for model in versions.values()]

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether the model can be called; False for an unknown one."""
        versions = self._models.get(name, {})
        found = [versions[version]] if version in versions else [] if version else versions.values()
        return any(model.unready_reason is None for model in found)

    @property
    def is_ready(self) -> bool:
        """Whether all models that are to be served are."""
        states = (state for versions in self._states.values() for state in versions.values())
        return (
            self._has_started
            and not any(state.state == LOADING or _has_failed(state) for state in states)
            and not any(model.workers.unready_reason for model in self.models())
        )

    @property
    def is_serving(self) -> bool:
        """Whether it has started, and has not been told to end."""
        return self._has_started

    def index(self, *, is_ready: bool = False) -> list[ModelState]:
        """What is known of all models, or of those that are ready."""
        states = [self._now(state) for name in sorted(self._states) for state in self._states[name].values()]
        if is_ready:
            return [state for state in states if state.state == READY]
        unknown = sorted(set(self._folders) - set(self._states))
        return [*states, *(ModelState(name, "", "", "") for name in unknown)]

    def _now(self, state: ModelState) -> ModelState:
        """*state*, but for an ensemble whose models have been unloaded."""
        model = self._models.get(state.name, {}).get(state.version)
        reason = None if model is None else model.unready_reason
        return state if reason is None else state._replace(state=UNAVAILABLE, reason=reason)

    async def refresh(self) -> None:
        """Look which models are in the folder now; those that nobody has loaded are in the index, too.

        Raises:
            NotFoundError: there is no such folder; clients are not told where it was.
        """
        if self._folder is not None:
            try:
                self._folders = await asyncio.to_thread(model_folders, self._folder)
            except NotFoundError as error:
                raise NotFoundError("there is no folder of models") from error

    async def load(
        self, name: str, parameters: Mapping[str, Parameter] | None = None, *, version_policy: object = None
    ) -> None:
        """Load *name*, or load it anew; ``config`` of *parameters* is a ModelConfig as JSON.

        Its ModelVersionPolicy is *version_policy*, if there is one.

        Raises:
            InvalidArgumentError: it cannot be loaded; UnimplementedError: models are not loaded on demand here.
            UnavailableError: the repository is closed.
        """
        self.check_loads()
        config = config_of_load(parameters or {})
        try:
            read = None if config is None else await asyncio.to_thread(parse_json, config, f"the config of '{name}'")
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"failed to load '{name}', {one_line(error)}") from None
        if self._is_closed:
            raise UnavailableError(f"'{name}' is not loaded: the repository is closed")
        await self._finished(self._begin(self._load(name, read, version_policy), self._loading))

    async def unload(self, name: str) -> None:
        """Serve *name* no more; what it has been called for goes on.  It waits for a load of *name*.

        Raises:
            UnimplementedError: models are not unloaded on demand here.
        """
        self.check_loads()
        lock = self._lock(name)
        async with lock:
            if name not in self._states:
                raise NotFoundError(f"Request for unknown model: '{name}' is not found")
            self._retire(name)
            for version, state in self._states[name].items():
                if state.state == UNAVAILABLE:  # it is not to be served any more
                    self._note(name, version, UNAVAILABLE, UNLOADED)

    def check_loads(self) -> None:
        """Raise UnimplementedError where models are not loaded and unloaded on demand."""
        if self._control != "explicit" or self._folder is None:
            raise UnimplementedError(
                "explicit model load / unload is not allowed", hint="start with --model-control explicit"
            )

    async def _try(self, load: Coroutine[Any, Any, None]) -> None:
        try:
            await load
        except OpError as error:
            _LOGGER.error("%s", error)

    async def _load(
        self, name: str, config: object = None, policy: object = None, within: tuple[str, ...] = ()
    ) -> None:
        """Load *name* of the folder; while it is loaded, nobody else loads or unloads it.

        The models of an ensemble are loaded before it, and before its lock is taken; *within* are those that need it.
        """
        folder = await self._folder_of(name)
        for needed in await asyncio.to_thread(models_of, folder, config):
            if needed not in self._models and needed not in (*within, name):
                await self._try(self._load(needed, within=(*within, name)))
        lock = self._lock(name)
        async with lock:
            folder = await self._folder_of(name)
            if name not in self._models:
                self._states[name] = {"": ModelState(name, "", LOADING, "")}
            try:
                self._prints[name] = await asyncio.to_thread(fingerprint, folder)
                versions = await asyncio.to_thread(self._read, folder, config, policy)
            except Exception as error:
                raise self._refused(name, "", error) from error
            except asyncio.CancelledError:
                self._note_unserved(name, "", UNLOADED)
                raise
            try:
                await self._serve(name, versions)
            except InvalidArgumentError:
                if any(isinstance(each, ReadModel) and is_ensemble(each.config) for each in versions):
                    self._prints.pop(name, None)  # its models may come: poll again
                raise

    async def _folder_of(self, name: str) -> Path:
        told = f"failed to load '{name}', failed to poll from model repository"
        try:
            await self.refresh()
        except NotFoundError as error:
            raise InvalidArgumentError(told) from error
        folder = self._folders.get(name)
        if folder is None:
            raise InvalidArgumentError(told)
        return folder

    def _read(self, folder: Path, config: Any, policy: object) -> list[ReadModel | FailedVersion]:
        if policy is not None:
            config = config_in(folder) if config is None else config
            config.version_policy.CopyFrom(policy)
        return list(read_model(folder, config, allow_python=self._allows_python))

    async def _serve(self, name: str, versions: Sequence[ReadModel | FailedVersion]) -> None:
        """Let *versions* be those of *name*, when they are ready; of one that fails, what was served is served on.

        Raises:
            InvalidArgumentError: none of them is ready; all that was served is served on.
        """
        made: dict[str, Model] = {}
        failed: dict[str, BaseException] = {}
        try:
            for each in versions:
                if isinstance(each, FailedVersion):
                    failed[each.version] = each.error
                    continue
                try:
                    made[each.version] = await self._make(name, each)
                except Exception as error:
                    failed[each.version] = error
        except BaseException:
            for model in made.values():
                self._begin(model.close(), self._closing)
            self._note_unserved(name, "", UNLOADED)
            raise
        if made:
            served = self._models.pop(name, {})
            kept = {version: served.pop(version) for version in failed if version in served}
            for model in served.values():
                self._begin(self._close(model), self._closing)
            self._models[name] = dict(sorted({**made, **kept}.items(), key=lambda item: int(item[0])))
        self._states[name] = {version: ModelState(name, version, READY, "") for version in self._models.get(name, {})}
        refused = [self._refused(name, version, error) for version, error in failed.items()]
        if not made:
            raise refused[-1] from list(failed.values())[-1]
        for each_refused in refused:
            _LOGGER.error("%s", each_refused)

    async def _make(self, name: str, read: ReadModel) -> Model:
        """The model that was *read*, its variables restored, warmed up."""
        if is_ensemble(read.config):
            options = {"labels": read.labels, "hooks": self.hooks}
            model: Model = EnsembleModel.of(name, read.version, read.config, self.model, **options)
        else:
            cache = self._cache if read.config.response_cache.enable else None
            model = make_model(name, read, cache, self.hooks, self._cluster)
        try:
            await initialize(model.session, read.init_steps)
            await model.warm_up()
        except BaseException:
            self._begin(model.close(), self._closing)
            raise
        return model

    def _refused(self, name: str, version: str, error: BaseException) -> InvalidArgumentError:
        """What the caller gets where a version cannot be loaded; one that was loaded before is served on."""
        where = f"{self._folder}{os.sep}"  # on this machine, which is none of a client's business
        if isinstance(error, OpError):
            error.message = error.message.replace(where, "")  # before it is shortened
        reason = one_line(error).replace(where, "")
        self._note_unserved(name, version, reason)
        return InvalidArgumentError(f"failed to load '{name}', {reason}")

    def _note_unserved(self, name: str, version: str, reason: str) -> None:
        """Say why *version* is not served, if it is not; why no version is known, if none is served."""
        if name in self._models and (not version or version in self._models[name]):
            return
        if not version:
            self._states.pop(name, None)
        self._note(name, version, UNAVAILABLE, reason)

    def _retire(self, name: str) -> None:
        """Serve the versions of *name* no more, and close them when the calls under way have ended."""
        for version, model in self._models.pop(name, {}).items():
            self._note(name, version, UNLOADING, "")
            self._begin(self._close(model), self._closing)

    async def _close(self, model: Model) -> None:
        await model.close()
        state = self._states.get(model.name, {}).get(model.version)
        if state is not None and state.state == UNLOADING:
            self._note(model.name, model.version, UNAVAILABLE, UNLOADED)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self._look_again()
            except Exception:  # such as a folder that is moved away: what is served is served on
                _LOGGER.exception("the folder of models cannot be polled")

    async def _look_again(self) -> None:
        await self.refresh()
        folders = self._folders
        for name in [name for name in self._states if name not in folders and name not in self._sources]:
            self._retire(name)
            self._states.pop(name)
            self._prints.pop(name, None)
        for name, folder in folders.items():
            if await asyncio.to_thread(fingerprint, folder) != self._prints.get(name):
                await self._try(self._load(name))

    def _note(self, name: str, version: str, state: str, reason: str) -> None:
        self._states.setdefault(name, {})[version] = ModelState(name, version, state, reason)

    def _lock(self, name: str) -> asyncio.Lock:
        """Whoever loads or unloads *name* holds it; it is gone when nobody has it."""
        return self._locks.setdefault(name, asyncio.Lock())

    def _begin(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        return task

    async def _finished(self, load: asyncio.Task[None]) -> None:
        """Wait for *load*, which goes on though the caller leaves; UnavailableError where close() cancels it."""
        load.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may have left
        await asyncio.wait([load])
        if load.cancelled():
            raise UnavailableError("the repository was closed before models were loaded")
        load.result()


def _has_failed(state: ModelState) -> bool:
    return state.state == UNAVAILABLE and state.reason != UNLOADED
