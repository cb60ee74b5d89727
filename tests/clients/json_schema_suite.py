"""JSON-Schema-Test-Suite: what is generated under its schemas is valid.

    tests/clients/json_schema_suite.py PROGRAM MODEL SUITE [--texts 500] [--temperature 1.5]

Needs a copy of the public suite and the package jsonschema. Asks the server of PROGRAM for texts
under each schema of drafts 4, 6, 7, 2019-09 and 2020-12, in turn with other seeds until there are
enough, and validates each with jsonschema. A schema that the server refuses is counted with its
reason, a text that is cut counts for nothing. Prints JSON; fails where a document is invalid.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import sys

import jsonschema

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
from server import Server  # noqa: E402

DRAFTS = {"draft4": jsonschema.Draft4Validator, "draft6": jsonschema.Draft6Validator,
          "draft7": jsonschema.Draft7Validator, "draft2019-09": jsonschema.Draft201909Validator,
          "draft2020-12": jsonschema.Draft202012Validator}


def schemas(suite):
    """(where, validator, schema) of each case of the suite, optional ones left out but formats."""
    for draft, validator in DRAFTS.items():
        folder = suite / "tests" / draft
        for path in sorted(folder.glob("*.json")) + sorted(folder.glob("optional/format/*.json")):
            for case in json.loads(path.read_text(encoding="utf-8")):
                schema = case["schema"]
                # Drafts read keywords otherwise; a schema that does not say its own is told it.
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": validator.META_SCHEMA.get(
                        "$schema", validator.META_SCHEMA.get("$id")), **schema}
                yield f"{draft}/{path.name}: {case['description']}", validator, schema


def ask(server, connection, schema, seed, options):
    body = {"prompt": "The document:\n", "json_schema": schema, "seed": seed,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature, "top_k": 0, "top_p": 1, "min_p": 0}
    status, text = server.ask("/v1/completions", body, connection)
    return status, json.loads(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("suite", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--temperature", type=float, default=1.5)
    parser.add_argument("--max-tokens", type=int, default=120)
    options = parser.parse_args()
    cases = list(schemas(options.suite))
    assert cases, f"no schemas below {options.suite}/tests"
    counts = collections.Counter(schemas=len(cases))
    reasons = collections.Counter()
    refused, invalid, failed = set(), [], []
    with Server(options.program, model=options.model, context=4096) as server:
        connection = server.connect(timeout=None)
        for seed in range(1000):
            for where, validator, schema in cases:
                if counts["documents"] >= options.texts or where in refused:
                    continue
                status, answer = ask(server, connection, schema, seed, options)
                if status == 400:
                    refused.add(where)
                    message = answer["error"]["message"]
                    reasons[re.sub(r"^json_schema(#\S*)?: ", "", message)[:60]] += 1
                    continue
                if status != 200:
                    failed.append(f"{where}: {status} {answer}")
                    refused.add(where)
                    continue
                choice = answer["choices"][0]
                if choice["finish_reason"] != "stop":
                    counts["cut"] += 1
                    continue
                counts["documents"] += 1
                try:
                    document = json.loads(choice["text"])
                    checker = validator.FORMAT_CHECKER if "/format" in where else None
                    validator(schema, format_checker=checker).validate(document)
                except (ValueError, jsonschema.ValidationError) as error:
                    invalid.append(f"{where}: {choice['text']!r}: {str(error).splitlines()[0]}")
            if counts["documents"] >= options.texts or len(refused) == len(cases):
                break
    print(json.dumps({**counts, "refused": len(refused) - len(failed),
                      "why": dict(reasons.most_common()), "failed": failed,
                      "invalid": invalid}, indent=1, ensure_ascii=False))
    return 1 if invalid or failed or counts["documents"] < options.texts else 0


if __name__ == "__main__":
    sys.exit(main())
