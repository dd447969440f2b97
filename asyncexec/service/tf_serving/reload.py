"""``ModelService/HandleReloadConfigRequest`` of TensorFlow Serving: which models of the repository are to be served."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from typing import Any

from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError
from asyncexec.service.models.ensemble import EnsembleModel
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.protocol_messages import message


class Reloader:
    """Lets the models of *repository* be those that clients name."""

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository
        self._policies: dict[str, bytes] = {}  # of the models that have been loaded by a config
        self._lock = asyncio.Lock()  # one config after the other

    async def reload(self, config: Any) -> None:
        """Load the models that *config*, a ModelServerConfig, names, and unload all others.

        Models that are served as it says are left as they are.

        Raises:
            InvalidArgumentError: it names what is no model of the repository; a model cannot be loaded, and then no
                other is unloaded.
            FailedPreconditionError: a label is for a version that is not served.
            UnimplementedError: the repository does not let clients load models.
        """
        if config.WhichOneof("config") != "model_config_list":
            raise InvalidArgumentError("the config has no 'model_config_list', and no other is known")
        entries = {each.name: each for each in config.model_config_list.config}
        if len(entries) < len(config.model_config_list.config):
            raise InvalidArgumentError("a model is there twice in 'model_config_list'")
        for entry in entries.values():
            _check(entry)
        self._repository.check_loads()
        async with self._lock:
            for name, entry in entries.items():
                policy = entry.model_version_policy.SerializeToString()
                if not self._repository.is_model_ready(name) or self._policies.get(name, b"") != policy:
                    await self._repository.load(name, version_policy=_policy_of(entry))
                    self._policies[name] = policy
            for name in {model.name for model in self._repository.models()} - self._needed(set(entries)):
                self._policies.pop(name, None)
                self._repository.labels.pop(name, None)
                await self._repository.unload(name)
            for name, entry in entries.items():
                self._label(name, dict(entry.version_labels))

    def _needed(self, names: set[str]) -> set[str]:
        """*names*, and the models that ensembles of them call."""
        ensembles = [model for model in self._repository.models() if isinstance(model, EnsembleModel)]
        while True:
            called = {name for model in ensembles if model.name in names for name, _ in model.steps}
            if called <= names:
                return names
            names = names | called

    def _label(self, name: str, labels: dict[str, int]) -> None:
        for label, version in labels.items():
            if not self._repository.is_model_ready(name, str(version)):
                raise FailedPreconditionError(
                    f"label '{label}' of model '{name}' is for version {version}, which is not served"
                )
        self._repository.labels[name] = {label: str(version) for label, version in labels.items()}


def _check(entry: Any) -> None:
    """Raise InvalidArgumentError where *entry*, a ModelConfig, asks for what is not in the repository."""
    if not entry.name:
        raise InvalidArgumentError("a model of 'model_config_list' has no name")
    if entry.base_path and PurePath(entry.base_path).name != entry.name:
        raise InvalidArgumentError(
            f"'base_path' of model '{entry.name}' is '{entry.base_path}': the folder of a model has its name",
            hint="models are those of the server's repository",
        )


def _policy_of(entry: Any) -> object:
    """The version policy of *entry* as the repository's models have it; None for theirs."""
    choice = entry.model_version_policy.WhichOneof("policy_choice")
    if choice is None:
        return None
    policy = message("ModelVersionPolicy")()
    getattr(policy, choice).ParseFromString(getattr(entry.model_version_policy, choice).SerializeToString())
    getattr(policy, choice).SetInParent()
    if choice == "latest":
        policy.latest.num_versions = policy.latest.num_versions or 1
    return policy
