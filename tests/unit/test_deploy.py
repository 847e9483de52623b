"""The manifest for Kubernetes: each of its documents is as the schema has it, and they fit."""

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

HERE = Path(__file__).parents[2] / "deploy" / "kubernetes"
VERSION = "1.33"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((HERE / "sojourn.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "document", documents(), ids=lambda d: f"{d['kind']} {d['metadata']['name']}"
)
def test_every_document_is_as_the_schema_has_it(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, VERSION, strict=True)


def test_a_wrong_document_would_be_found() -> None:
    wrong = next(d for d in documents() if d["kind"] == "Deployment")
    wrong["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


def test_documents_name_one_another() -> None:
    found = {(d["kind"], d["metadata"]["name"]): d for d in documents()}
    pod = found["Deployment", "driver"]["spec"]["template"]
    assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in found
    service = found["Service", "driver"]["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert (
        "PersistentVolumeClaim",
        volumes["shared"]["persistentVolumeClaim"]["claimName"],
    ) in found
    assert ("ConfigMap", volumes["conf"]["configMap"]["name"]) in found
    conf = found["ConfigMap", "spark"]["data"]["spark-defaults.conf"]
    settings = dict(line.split() for line in conf.strip().splitlines())
    ports = {str(port["port"]) for port in service["ports"]}
    assert {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]} == ports
    assert settings["spark.driver.host"] == "driver.sojourn.svc"


def test_the_entrance_is_a_script_that_the_shell_can_read() -> None:
    for name in ("entrypoint.sh", "decom.sh"):
        subprocess.run(["bash", "-n", str(HERE / name)], check=True)
        assert (HERE / name).stat().st_mode & 0o100
