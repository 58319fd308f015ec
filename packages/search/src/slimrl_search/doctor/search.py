"""Probes ChromaDB and the embedder, with which wiki-search finds titles."""

from importlib.metadata import version
from importlib.util import find_spec

from slimrl.errors import install_hint
from slimrl.monitor.findings import Finding, Level
from slimrl_search.retrieval.embedding import NAME, PACKAGE

PACKAGES = {"chromadb": "ChromaDB", "sentence_transformers": "sentence-transformers", PACKAGE: NAME}


def probe() -> list[Finding]:
    """Return a finding on ChromaDB and the embedder. ChromaDB is tested with a small index in memory. For the embedder,
    only its installation is checked, because loading it takes seconds."""
    missing = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if missing:
        text = f"{' and '.join(missing)} not installed, so wiki-search cannot be played here"
        return [Finding("search", Level.NOTE, text, install_hint("search"))]
    text, found = f"ChromaDB {version('chromadb')}", try_chroma()
    if found != ["near", "far"]:
        remedy = f"Install it again: {install_hint('search')}"
        return [Finding("search", Level.PROBLEM, f"{text} finds {found} where near comes first", remedy)]
    embedder = f"{NAME} by sentence-transformers {version('sentence-transformers')}, on the CPU"
    return [Finding("search", Level.OK, f"{text} finds titles; embedder: {embedder}")]


def try_chroma() -> list[str]:
    """Return the ids that a query finds in a small index in memory, nearest first."""
    import chromadb  # an extra, so it is imported only here

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("slimrl-doctor", embedding_function=None)
    collection.add(ids=["near", "far"], embeddings=[[1.0, 0.0], [0.0, 1.0]])
    found = collection.query(query_embeddings=[[0.9, 0.1]], n_results=2)
    client.delete_collection("slimrl-doctor")
    return list(found["ids"][0])
