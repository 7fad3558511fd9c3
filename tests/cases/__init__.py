"""Needs of users, each test written from scratch after a public report, which its docstring names.

They hold for any correct backend: `pytest tests/cases --backend inductor` shows what plain Inductor
does. The numbers in the names of the tests are this project's own and stay.
"""
