"""Expressions in the form that travels: frozen trees of calls of Arrow's compute functions, with Spark's meaning.

`flow/expressions` makes them from Spark SQL; workers evaluate them without a parser
(`test_the_compiled_form_travels_and_needs_no_parser`). A tree is data: a call names its kernel, and `registry` knows
the function behind the name.
"""
