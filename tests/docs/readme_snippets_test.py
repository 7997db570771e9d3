"""The blocks shown on a page are the ones checked, and an error is reported at its line."""

import sys
import tempfile
import unittest
from pathlib import Path

import readme_snippets


class ReadmeSnippets(unittest.TestCase):
    def run_page(self, text):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "PAGE.md")
            page.write_text(text, encoding="utf-8")
            readme_snippets.run(page, Path(folder))

    def test_runs_shell_blocks_in_order_in_one_folder(self):
        self.run_page("```sh\necho 7 > made\n```\nthen\n```sh\ntest $(cat made) = 7\n```\n")

    def test_reports_the_line_of_a_block_that_fails(self):
        with self.assertRaisesRegex(readme_snippets.PageError, "line 4: the block ended with 1"):
            self.run_page("words\n\n```sh\nfalse\ntrue\n```\n")

    def test_fails_where_any_part_of_a_pipe_does(self):
        with self.assertRaises(readme_snippets.PageError):
            self.run_page("```sh\nfalse | cat\n```\n")

    def test_fails_where_nothing_would_be_run(self):
        with self.assertRaisesRegex(readme_snippets.PageError, "no sh block"):
            self.run_page("<!-- not run: reason -->\n```sh\ntrue\n```\n")

    def run_python(self, text):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "PAGE.md")
            page.write_text(text, encoding="utf-8")
            readme_snippets.run_python(page, sys.executable)

    def test_runs_python_blocks_as_one_program_whose_lines_are_the_pages(self):
        self.run_python("```python\nimport sys\n```\nthen\n```python\nassert sys._getframe().f_lineno == 6\n```\n")

    def test_fails_where_python_does(self):
        with self.assertRaisesRegex(readme_snippets.PageError, "python blocks ended with 1"):
            self.run_python("```python\nassert False\n```\n")

    def test_leaves_out_only_the_block_that_follows_the_mark(self):
        page = "<!-- not run: takes long -->\n```sh\nfalse\n```\n```sh\ntrue\n```\n"
        self.assertEqual([block.text for block in readme_snippets.blocks(page)], ["true\n"])

    def test_refuses_languages_that_nobody_checks(self):
        for fence in ["```", "```rust"]:
            with self.assertRaisesRegex(readme_snippets.PageError, "known are cpp, python, sh, text"):
                readme_snippets.blocks(f"{fence}\ncode\n```\n")

    def test_makes_statements_a_program_whose_lines_are_the_pages(self):
        block = readme_snippets.Block("cpp", '#include "a.h"\n\nint x = f();\n', 10)
        self.assertEqual(
            readme_snippets.program(block, "P"),
            '#line 10 "P"\n#include "a.h"\n\nusing namespace evenkeel;\nint main() {\n#line 12 "P"\nint x = f();\n}\n',
        )

    def test_leaves_a_whole_program_as_it_is(self):
        block = readme_snippets.Block("cpp", "int main() { return 0; }\n", 3)
        self.assertEqual(readme_snippets.program(block, "P"), '#line 3 "P"\nint main() { return 0; }\n')


if __name__ == "__main__":
    unittest.main()
