"""The manifest for Kubernetes agrees with the image."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from slimrl_cluster.commands.launch import BY_RAY

ROOT = Path(__file__).parents[4]
MANIFEST = ROOT / "deploy/kubernetes/rayjob.yaml"
DOCKERFILE = ROOT / "deploy/Dockerfile"


@pytest.fixture(scope="module")
def claim_and_job() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def cluster(claim_and_job: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = claim_and_job[1]["spec"]["rayClusterSpec"]
    return found


def test_the_job_is_kuberays(claim_and_job: list[dict[str, Any]]) -> None:
    job = claim_and_job[1]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob") and job["spec"]["shutdownAfterJobFinishes"]
    assert job["spec"]["rayClusterSpec"]["authOptions"]["mode"] == "token"


def test_every_pod_sees_the_directory_of_the_run(claim_and_job: list[dict[str, Any]], cluster: dict[str, Any]) -> None:
    claim, job = claim_and_job
    assert claim["kind"] == "PersistentVolumeClaim" and claim["spec"]["accessModes"] == ["ReadWriteMany"]
    words = shlex.split(job["spec"]["entrypoint"])
    output_dir = words[words.index("--output_dir") + 1]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        [name] = [
            volume["name"]
            for volume in pod["volumes"]
            if volume.get("persistentVolumeClaim", {}).get("claimName") == claim["metadata"]["name"]
        ]
        assert output_dir.startswith(f"{mounts[name]}/")


def test_head_and_workers_differ_in_their_resources_alone(cluster: dict[str, Any]) -> None:
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    assert all(pod["containers"][0]["resources"]["requests"] == resources_of(pod) for pod in pods)
    first, *others = [{**pod, "containers": without_resources(pod)} for pod in pods]
    assert all(other == first for other in others)


def resources_of(pod: dict[str, Any]) -> Any:
    return pod["containers"][0]["resources"]["limits"]


def without_resources(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**container, "resources": None} for container in pod["containers"]]


def test_the_entrypoint_is_the_command_that_slurm_runs(claim_and_job: list[dict[str, Any]]) -> None:
    words = shlex.split(claim_and_job[1]["spec"]["entrypoint"])
    assert words[:3] == ["slimrl", "rl", "@"] and (ROOT / words[3]).is_file()
    assert " ".join(BY_RAY) in " ".join(words) and "--resume" in words


def test_workers_have_a_gpu_for_each_sampler_and_trainer(
    claim_and_job: list[dict[str, Any]], cluster: dict[str, Any]
) -> None:
    words = shlex.split(claim_and_job[1]["spec"]["entrypoint"])
    wanted = sum(int(words[words.index(f"--deployment.num_{part}") + 1]) for part in ("samplers", "trainers"))
    groups = cluster["workerGroupSpecs"]
    there = sum(group["replicas"] * int(resources_of(group["template"]["spec"])["nvidia.com/gpu"]) for group in groups)
    assert there == wanted
    assert all(group["minReplicas"] == group["maxReplicas"] == group["replicas"] for group in groups)


def test_one_version_of_ray(cluster: dict[str, Any]) -> None:
    pins = re.findall(r"ray\[default\]==([\d.]+)", DOCKERFILE.read_text(encoding="utf-8"))
    assert pins == [cluster["rayVersion"]]


def test_the_image_is_made_of_every_plug_in() -> None:
    assert " /src/packages/* " in DOCKERFILE.read_text(encoding="utf-8")
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [path for line in ignored if line.startswith("!packages/") for path in ROOT.glob(line[1:])]
    packages = [path.parent for path in (ROOT / "packages").glob("*/pyproject.toml")]
    assert sorted(sent) == sorted(path / name for path in packages for name in ("README.md", "pyproject.toml", "src"))
