#!/usr/bin/env python3
"""examples/replicas against what reads them: KubeRay's published schema, and our own settings.

    PYTHONPATH=build/release/python PYTHON_WITH_RAY tests/ray/manifest_test.py [CRD]

CRD is helm-chart/kuberay-operator/crds/ray.io_rayservices.yaml of a checkout of KubeRay; without
it the manifest's schema is not checked, and the output says so.
"""

import os
import sys

import jsonschema
import yaml

from moeflux.serve._fleet import Fleet

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples",
                        "replicas")


def read(path):
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def closed(schema):
    """The schema as a cluster applies it, which drops unknown fields: here they are errors."""
    if isinstance(schema, dict):
        schema = {key: closed(value) for key, value in schema.items()}
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        if schema.pop("x-kubernetes-int-or-string", False):
            schema.pop("type", None)
            schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        return schema
    return [closed(one) for one in schema] if isinstance(schema, list) else schema


def main():
    Fleet.of(read(os.path.join(EXAMPLES, "fleet.yaml")), "fleet.yaml")
    manifest = read(os.path.join(EXAMPLES, "kuberay.yaml"))
    from ray.serve.schema import ServeDeploySchema
    served = ServeDeploySchema(**yaml.safe_load(manifest["spec"]["serveConfigV2"]))
    Fleet.of(served.applications[0].args, "kuberay.yaml")
    print("manifest: settings and Ray Serve's configuration are right")
    if len(sys.argv) < 2:
        print("manifest: no CRD given, KubeRay's schema is not checked")
        return
    versions = {version["name"]: version for version in read(sys.argv[1])["spec"]["versions"]}
    name = manifest["apiVersion"].rpartition("/")[2]
    schema = closed(versions[name]["schema"]["openAPIV3Schema"])
    # Kubernetes itself knows the metadata.
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.Draft202012Validator(schema).validate(manifest)
    broken = {**manifest, "spec": {**manifest["spec"], "serveConfig": ""}}
    assert not jsonschema.Draft202012Validator(schema).is_valid(broken)
    print(f"manifest: valid for {manifest['kind']} {name}")


if __name__ == "__main__":
    main()
