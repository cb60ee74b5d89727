#!/bin/sh
# All tests of replicas, with what tools/install_ray.sh has brought: run.sh MOEFLUX. KubeRay's
# schema is checked where MOEFLUX_TEST_KUBERAY_CRD names its file.
set -eu
cd "$(dirname "$0")/../.."
export PYTHONPATH=build/release/python PATH="$PATH:/usr/sbin"
crd=${MOEFLUX_TEST_KUBERAY_CRD:-}
build/ray/bin/python tests/ray/manifest_test.py ${crd:+"$crd"}
build/ray/bin/python -W ignore tests/ray/replicas_test.py "$1"
build/ray/bin/python -W ignore tests/ray/proxies_test.py "$1"
