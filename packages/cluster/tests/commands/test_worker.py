"""What the `worker` command refuses before it starts anything."""

from slimrl.cli import run

FLAGS = ["worker", "--orchestrator.env.0.id", "reverse-text", "--inference.api_key_variable", "WORKER_KEY"]


def test_without_a_key_nobody_is_served(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("WORKER_KEY", raising=False)
    assert run([*FLAGS, "--output_dir", str(tmp_path)]) == 2
    assert "set the variable WORKER_KEY to a key" in capsys.readouterr().err


def test_an_address_of_another_machine_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORKER_KEY", "key")
    assert run([*FLAGS, "--output_dir", str(tmp_path), "--deployment.host", "192.0.2.1"]) == 2
    assert "deployment.host = 192.0.2.1" in capsys.readouterr().err
