"""Probes ChromaDB and the embedder, with which wiki-search finds titles."""

import importlib.util
from importlib.metadata import version

from slimrl.errors import install_hint
from slimrl.monitor.findings import Finding, Level
from slimrl_search.retrieval.embedding import DEFAULT, find_packaged

PACKAGES = {"chromadb": "ChromaDB", "sentence_transformers": "sentence-transformers"}


def probe() -> list[Finding]:
    """Return findings on ChromaDB and the embedder. ChromaDB is tested with a small index in memory. For the embedder,
    only its installation is checked, because loading it takes seconds."""
    missing = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        text = f"{' and '.join(missing)} not installed, so wiki-search cannot be played here"
        return [Finding("search", Level.NOTE, text, install_hint("search"))]
    text, found = f"ChromaDB {version('chromadb')}", try_chroma()
    chroma = Finding("search", Level.OK, f"{text} finds titles")
    if found != ["near", "far"]:
        remedy = f"Install it again: {install_hint('search')}"
        chroma = Finding("search", Level.PROBLEM, f"{text} finds {found} where near comes first", remedy)
    text = f"{DEFAULT} (packaged) by sentence-transformers {version('sentence-transformers')}, on the CPU"
    embedder = Finding("embedder", Level.OK, text)
    if find_packaged(DEFAULT) is None:
        text = f"{DEFAULT} is not installed, and would be fetched from the Hub"
        embedder = Finding("embedder", Level.NOTE, text, install_hint("search"))
    return [chroma, embedder]


def try_chroma() -> list[str]:
    """Return the ids that a query finds in a small index in memory, nearest first."""
    import chromadb  # an extra, so it is imported only here

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("slimrl-doctor", embedding_function=None)
    collection.add(ids=["near", "far"], embeddings=[[1.0, 0.0], [0.0, 1.0]])
    found = collection.query(query_embeddings=[[0.9, 0.1]], n_results=2)
    client.delete_collection("slimrl-doctor")
    return list(found["ids"][0])
