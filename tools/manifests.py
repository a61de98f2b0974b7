"""Write deploy/kubernetes/ from the chart in deploy/helm/slb, with its default values.

    python tools/manifests.py

It needs helm's own engine, which the package `helm-python-sdk` has; it is not among the project's requirements.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "slb"
MANIFESTS = ROOT / "deploy" / "kubernetes"
_HEAD = "# Made by tools/manifests.py out of deploy/helm/slb: change it there.\n"


def rendered() -> dict[str, str]:
    """The file's name -> its text, of each template that makes something. Raises ImportError without the engine."""
    from helm_python import Chart

    found = Chart.load(CHART).render(name="slb", namespace="slb")
    return {Path(name).name: f"{_HEAD}{text.strip()}\n" for name, text in found.items() if "kind:" in text}


def main() -> None:
    MANIFESTS.mkdir(parents=True, exist_ok=True)
    for name, text in rendered().items():
        (MANIFESTS / name).write_text(text)


if __name__ == "__main__":
    main()
