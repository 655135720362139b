"""What tools/prose.py finds: each kind of thing once, and nothing in code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("prose", Path(__file__).parents[2] / "tools" / "prose.py")
assert _SPEC is not None
assert _SPEC.loader is not None
prose = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(prose)

PAGE = """# A ceiling

Text of the ceiling, and `ceiling` in code.

```console
$ linkgauge ceiling
```

| table |
| --- |
| a remedy in a table |

- {long}
{wide}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    return tmp_path


def test_words_sentences_and_columns_of_a_page(folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(PAGE.format(long=" ".join(["ab"] * 26) + ".", wide="x" * 121))
    found = list(prose.of_markdown(page))
    assert [line.partition(": ")[0] for line in found if "ceiling" in line] == ["page.md:1", "page.md:3"]
    assert sum("'remedy'" in line for line in found) == 1
    assert sum("a sentence of 27 words" in line for line in found) == 1  # the next line belongs to it
    assert sum("121 columns" in line for line in found) == 1
    assert len(found) == 5


def test_sentences_of_few_words_pass_however_many(folder: Path) -> None:
    page = folder / "page.md"
    page.write_text("**Bold.** " + "`Code` begins one. Another ends.\n" * 20)
    assert list(prose.of_markdown(page)) == []


def test_texts_of_sources_are_read_and_code_is_not(folder: Path) -> None:
    module = folder / "module.py"
    module.write_text('"""The ceiling of a docstring."""\nceiling = f"a ceiling of {ceiling}"  # a ceiling\n')
    assert list(prose.of_python(module)) == ["module.py:2: 'ceiling': say limit"]
    source = folder / "source.cpp"
    source.write_text('int ceiling;  // "a ceiling here"\nthrow Error("the ceiling is here");\n')
    assert list(prose.of_cpp(source)) == ["source.cpp:2: 'ceiling': say limit"]
