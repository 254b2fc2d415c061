"""The field cases of ../shared/cases/cases.md, rebuilt as kinds of faults: see field_case.py."""
