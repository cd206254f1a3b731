"""The public test kit: charts run in one process, on a clock that the test moves.

It keeps nothing and reaches nothing outside; what it promises about delivery is what every driver promises.
"""
