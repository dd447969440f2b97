"""The OpenAPI description: it is valid, has every route, and tells what is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

import asyncexec as ax
from asyncexec.service.app import InferenceApp
from asyncexec.service.http.errors import STATUSES
from asyncexec.service.http.openapi import document
from asyncexec.service.tf_serving.rest import SERVING_STATUSES
from tests.service.http_models import FakeRepository, made, unary
from tests.service.serving_models import of_examples

pytestmark = pytest.mark.one_of("loop")

TOKEN = "t"
X = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
EXAMPLES = {"examples": [{"a": 1}]}
V1, V2 = "/v1/models", "/v2/models"
# A call of each operation, and its status.
CALLS: list[tuple[str, str, dict[str, str], Any, int]] = [
    ("GET", "/v2", {}, None, 200),
    ("GET", "/v2/openapi.json", {}, None, 200),
    ("GET", "/metrics", {}, None, 200),
    ("GET", "/v2/health/live", {}, None, 200),
    ("GET", "/v2/health/ready", {}, None, 503),
    ("GET", f"{V2}/stats", {}, None, 200),
    ("GET", f"{V2}/{{name}}", {"name": "m"}, None, 200),
    ("GET", f"{V2}/{{name}}", {"name": "none"}, None, 404),
    ("GET", f"{V2}/{{name}}", {"name": "unready"}, None, 503),
    ("GET", f"{V2}/{{name}}/ready", {"name": "m"}, None, 200),
    ("GET", f"{V2}/{{name}}/ready", {"name": "none"}, None, 503),
    ("GET", f"{V2}/{{name}}/config", {"name": "m"}, None, 200),
    ("GET", f"{V2}/{{name}}/stats", {"name": "m"}, None, 200),
    ("GET", f"{V2}/{{name}}/versions/{{version}}", {"name": "m", "version": "1"}, None, 200),
    ("POST", f"{V2}/{{name}}/infer", {"name": "m"}, {"inputs": [X]}, 200),
    ("POST", f"{V2}/{{name}}/infer", {"name": "m"}, {"inputs": [X], "parameters": {"binary_data_output": True}}, 200),
    ("POST", f"{V2}/{{name}}/infer", {"name": "m"}, {"inputs": [X, X]}, 400),
    ("POST", f"{V2}/{{name}}/generate", {"name": "m"}, {"x": 1}, 200),
    ("POST", f"{V2}/{{name}}/generate_stream", {"name": "m"}, {"x": 1}, 200),
    ("POST", "/v2/repository/index", {}, {"ready": False}, 200),
    ("POST", "/v2/repository/models/{name}/load", {"name": "m"}, None, 200),
    ("POST", "/v2/repository/models/{name}/load", {"name": "none"}, None, 400),
    ("POST", "/v2/repository/models/{name}/unload", {"name": "m"}, None, 200),
    ("GET", f"{V1}/{{name}}", {"name": "m"}, None, 200),
    ("GET", f"{V1}/{{name}}/metadata", {"name": "m"}, None, 200),
    ("GET", f"{V1}/{{name}}/labels/{{label}}", {"name": "m", "label": "l"}, None, 404),
    ("POST", f"{V1}/{{name}}:predict", {"name": "m"}, {"instances": [1, 2]}, 200),
    ("POST", f"{V1}/{{name}}:predict", {"name": "m"}, {"inputs": [1, 2]}, 200),
    ("POST", f"{V1}/{{name}}:classify", {"name": "scored"}, EXAMPLES, 200),
    ("POST", f"{V1}/{{name}}:regress", {"name": "valued"}, EXAMPLES, 200),
    ("POST", f"{V1}/{{name}}:regress", {"name": "m"}, EXAMPLES, 400),
]


@pytest.fixture
async def app() -> AsyncIterator[InferenceApp]:
    config = {"parameters": {"a": {"string_value": "1"}}, "instance_group": [{"count": 2}]}
    served = FakeRepository(
        made("m", unary(ax.float32, [None], ax.identity), **config),
        made("unready", unary(ax.float32, [None], ax.identity)),
        of_examples("scored", scores=np.array([[0.5, 1]], np.float32)),
        of_examples("valued", outputs=np.array([0.5], np.float32)),
    )
    served.unready.add("unready")
    found = InferenceApp(served, tokens=[TOKEN])
    yield found
    await found.close()


@pytest.fixture
async def client(app: InferenceApp) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers) as found:
        yield found


@pytest.mark.parametrize("has_tokens", [False, True])
def test_it_is_valid(*, has_tokens: bool) -> None:
    OpenAPIV31SpecValidator(document(has_tokens=has_tokens)).validate()


async def test_every_route_is_in_it(app: InferenceApp) -> None:
    of_http = [each for each in app._routes.routes if isinstance(each, Route)]  # OpenAPI knows no WebSockets
    routes = {(method, each.path) for each in of_http for method in each.methods or {"*"}}
    routes = {(method, path) for method, path in routes if method != "HEAD"}
    told = document(has_tokens=False)["paths"]
    described = {(method.upper(), path) for path, operations in told.items() for method in operations}
    # Whatever else is under /v1 is refused by a route of its own.
    assert (routes - described, described - routes) == ({("*", "/v1/{path:path}")}, set())


@pytest.mark.parametrize(("method", "path", "parameters", "body", "status"), CALLS)
async def test_answers_are_as_described(
    client: httpx.AsyncClient, method: str, path: str, parameters: dict[str, str], body: Any, status: int
) -> None:
    whole = document(has_tokens=True)
    operation = whole["paths"][path][method.lower()]
    if body is not None:
        check(operation["requestBody"]["content"]["application/json"]["schema"], whole, body)
    answer = await client.request(method, path.format(**parameters), json=body)
    assert answer.status_code == status
    kind = answer.headers["content-type"].partition(";")[0]
    schema = operation["responses"][str(status)]["content"][kind]["schema"]
    if kind == "application/json":
        check(schema, whole, answer.json())
    refused = await client.request(method, path.format(**parameters), headers={"Authorization": ""})
    is_free = "401" not in operation["responses"]
    assert (refused.status_code == 401, path.startswith("/v2/health/")) == (not is_free, is_free)
    if not is_free:
        check(operation["responses"]["401"]["content"]["application/json"]["schema"], whole, refused.json())


def check(schema: Any, whole: Any, value: Any) -> None:
    """Raise ValidationError where *value* is not as *schema*, a part of the *whole* description, says."""
    Draft202012Validator({**schema, "components": whole["components"]}).validate(value)


def test_a_run_may_have_the_status_of_any_error() -> None:
    paths = document(has_tokens=False)["paths"]
    for end, statuses in ((f"{V2}/{{name}}/infer", STATUSES), (f"{V1}/{{name}}:predict", SERVING_STATUSES)):
        assert set(map(str, statuses.values())) <= set(paths[end]["post"]["responses"])


async def test_a_token_is_described_where_there_is_one(client: httpx.AsyncClient) -> None:
    told = (await client.get("/v2/openapi.json")).json()
    assert told["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert told["paths"]["/v2"]["get"]["security"] == [{"bearer": []}]
    assert "security" not in told["paths"]["/v2/health/live"]["get"]
    assert "securitySchemes" not in document(has_tokens=False)["components"]


@pytest.mark.parametrize("path", ["/v2", "/metrics", "/v2/openapi.json", f"{V2}/m"])
async def test_other_methods_are_refused_with_those_that_are_allowed(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.put(path)
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})
    assert {each.strip() for each in answer.headers["allow"].split(",")} == {"GET", "HEAD"}
    assert (await client.head(path)).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "QUERY"])
async def test_whatever_is_no_call_of_tensorflow_serving_is_malformed(client: httpx.AsyncClient, method: str) -> None:
    answer = await client.request(method, f"{V1}/m:predict")
    assert (answer.status_code, answer.json()) == (400, {"error": f"Malformed request: {method} {V1}/m:predict"})
