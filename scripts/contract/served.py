"""The document that a gateway serves has the kinds of its configuration: it is valid, and a client made from it posts them."""

import importlib
import json
import pathlib
import sys

import openapi_spec_validator

from contract import document, generated
from contract.gateway import SimulatedGateway
from harness import Failure, call

PACKAGE = "configured_client"
# Names and texts that YAML, OpenAPI, and a generator might misread.
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://shop.example/order", "type": "object",
    "description": "An order: \"as it is\", \\ with 1e3 rules \U0001f600", "required": ["id", "lines"],
    "properties": {
        "id": {"type": "string", "minLength": 1}, "total": {"type": "number", "minimum": 1e-3, "maximum": 1e30},
        "state": {"enum": ["no", "on", "null", "1e3"]}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "parent": {"$ref": "#"}, "any": True,
    },
    "$defs": {"line": {
        "type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
        "additionalProperties": False,
    }},
}


def check(binary, directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    schema = directory / "order.json"
    schema.write_text(json.dumps(SCHEMA))
    changes = {
        "orders": {"type": "webhook", "kinds": {
            "order-placed": {"schema": str(schema)}, "raw": {}, "both": {"fanOut": ["order-placed", "raw"]}}},
        # Its names collide with those of the former without their hyphens.
        "orders-order": {"type": "webhook", "kinds": {"placed": {}}},
    }
    with SimulatedGateway(binary, directory / "gateway", changes) as gateway:
        text = call(gateway.port, "GET", "/openapi.yaml")[2]
        (directory / "served.yaml").write_bytes(text)
        known = document.Document(directory / "served.yaml")
        openapi_spec_validator.validate(known.text)
        ids = [operation.id for operation in known.operations]
        if len(ids) != len(set(ids)):
            raise Failure("an operationId is repeated in the served document")
        generated.generate(known, directory, PACKAGE)
        sys.path.insert(0, str(directory))
        client = importlib.import_module(PACKAGE).AuthenticatedClient(f"http://127.0.0.1:{gateway.port}", gateway.key)
        post(client, gateway)
    return f"{len(ids)} operations"


def post(client, gateway):
    writing = f"{PACKAGE}.api.writing"
    order = importlib.import_module(f"{PACKAGE}.models").OrdersOrderPlaced
    body = order.from_dict({"id": "o-1", "total": 0.5, "lines": [{"sku": "a", "count": 1}]})
    placed = importlib.import_module(f"{writing}.post_orders_order_placed")
    receipt = placed.sync(client=client, body=body, idempotency_key="order-1")
    if type(receipt).__name__ != "Receipt" or receipt.upstream != "orders" or receipt.kind != "order-placed":
        raise Failure(f"the typed operation returned {receipt}")
    receipts = importlib.import_module(f"{writing}.post_orders_both").sync(client=client, body=body.to_dict())
    if len(receipts.ids) != 2:
        raise Failure(f"the fan-out returned {receipts}")
    problem = placed.sync_detailed(client=client, body=order.from_dict({"id": "", "lines": []}))
    if problem.status_code != 422:
        raise Failure(f"a payload that does not match gets {problem}")
    status, _, text = call(gateway.port, "POST", "/v1/orders/order-placed", b'{"id": "x"}', {"Content-Type": "application/json"})
    if status != 422 or json.loads(text)["errors"][0]["pointer"] != "/lines":
        raise Failure(f"an incomplete payload gets {status}: {text}")
