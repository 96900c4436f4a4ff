"""The OpenAPI document: reads it, and checks it by itself."""

import functools
import re

import openapi_spec_validator
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from harness import Failure

METHODS = ("get", "put", "post", "delete", "patch", "options", "head", "trace")


class StrictLoader(yaml.SafeLoader):
    """Rejects repeated keys, of which PyYAML takes the last. Times remain strings, as they do in JSON."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise Failure(f"{name} is repeated in line {key.start_mark.line + 1}")
            seen.add(name)
        return super().construct_mapping(node, deep)


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Operation:
    """One operation of the document. `pointer` is where its parts are found."""

    def __init__(self, known, path, method):
        item = known.text["paths"][path]
        self.known, self.path, self.method = known, path, method
        self.pointer = f"/paths/{escaped(path)}/{method}"
        self.description = item[method]
        self.id = self.description["operationId"]
        shared = [(f"/paths/{escaped(path)}/parameters/{i}", p) for i, p in enumerate(item.get("parameters", []))]
        own = [(f"{self.pointer}/parameters/{i}", p) for i, p in enumerate(self.description.get("parameters", []))]
        found = {}
        for pointer, parameter in shared + own:
            pointer, parameter = known.resolved(pointer, parameter)
            found[parameter["in"], parameter["name"]] = (pointer, parameter)
        self.parameters = list(found.values())

    def __str__(self):
        return f"{self.method.upper()} {self.path}"

    def body_examples(self):
        """(media type, name, value) of each example of a request body."""
        for media_type, content in self.description.get("requestBody", {}).get("content", {}).items():
            for name, value in self.known.examples(content):
                yield media_type, name, value


class Document:
    def __init__(self, path):
        self.path = path
        try:
            self.text = yaml.load(path.read_text(), StrictLoader)
        except yaml.YAMLError as error:
            raise Failure(f"{path.name} is not valid YAML: {error}") from error
        resource = Resource(contents=self.text, specification=DRAFT202012)
        self.registry = Registry().with_resource("urn:openapi", resource)
        operations = [
            Operation(self, path, method)
            for path, item in self.text["paths"].items() for method in item if method in METHODS
        ]
        # Those in the form of the gateway, and those in the form of the platforms, which `sdks.py` checks.
        self.operations = [one for one in operations if "SDK" not in one.description["tags"]]
        self.sdks = [one for one in operations if "SDK" in one.description["tags"]]

    def resolved(self, pointer, value):
        """(pointer, value), behind a `$ref` if it is one."""
        while "$ref" in value:
            pointer = value["$ref"][1:]
            value = self.at(pointer)
        return pointer, value

    def at(self, pointer):
        value = self.text
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            value = value[int(part)] if isinstance(value, list) else value[part]
        return value

    def examples(self, content):
        """(name, value) of the examples of a parameter or a media type."""
        if "example" in content:
            yield "example", content["example"]
        for name, example in content.get("examples", {}).items():
            yield name, self.resolved("", example)[1]["value"]

    def violations(self, value, pointer):
        """What is wrong with `value` by the schema at `pointer`."""
        return [f"{error.json_path}: {error.message[:300]}" for error in self.validator(pointer).iter_errors(value)]

    @functools.cache
    def validator(self, pointer):
        return Draft202012Validator(
            {"$ref": f"urn:openapi#{fragment(pointer)}"}, registry=self.registry,
            format_checker=Draft202012Validator.FORMAT_CHECKER)


def escaped(part):
    return part.replace("~", "~0").replace("/", "~1")


def fragment(pointer):
    return re.sub(r"[^\w~/!$&'()*+,;=:@.-]", lambda match: f"%{ord(match[0]):02X}", pointer)


def parts(value, pointer=""):
    """(pointer, part) of everything in the document."""
    yield pointer, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from parts(part, f"{pointer}/{escaped(str(key))}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from parts(part, f"{pointer}/{index}")


def check(known):
    try:
        openapi_spec_validator.validate(known.text)
    except openapi_spec_validator.validation.exceptions.OpenAPIValidationError as error:
        raise Failure(f"not valid OpenAPI 3.1: {error}") from error
    faults, count = [], 0
    for pointer, part in parts(known.text):
        if not isinstance(part, dict) or re.search("/(example|value|examples/[^/]*)(/|$)", pointer):
            continue
        if isinstance(part.get("schema"), dict):
            found = [(f"{pointer}/schema", name, value) for name, value in known.examples(part)]
        else:
            found = [(pointer, index, value) for index, value in enumerate(schema_examples(part))]
        for schema, name, value in found:
            count += 1
            faults += [f"{pointer}, {name}: {fault}" for fault in known.violations(value, schema)]
    if faults:
        raise Failure("examples do not match their schemas:\n  " + "\n  ".join(faults))
    return f"valid, with {count} examples that match their schemas"


def schema_examples(part):
    found = part.get("examples", [])
    return found if isinstance(found, list) else []
