"""The Spark schema of collected rows, as the topology typed them.

`createDataFrame(table)` guesses the schema, and guesses wrong: a time without a zone becomes a time of the session's
zone, an hour off in Berlin, and a time that the clocks there skip is an error. So the schema is made here. It is built
from type objects; in DDL, `timestamp` would mean what `spark.sql.timestampType` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.flow.schema import type_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """The StructType of an Arrow schema; InvalidInput for a type that Spark does not have."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in schema])


def spark_type(kind: pa.DataType) -> DataType:
    """One type, with all that it is made of; its parts may be null."""
    from pyspark.sql import types as spark

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return spark.ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_struct(kind):
        return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in kind])
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    plain: dict[str, DataType] = {
        "boolean": spark.BooleanType(),
        "tinyint": spark.ByteType(),
        "smallint": spark.ShortType(),
        "int": spark.IntegerType(),
        "bigint": spark.LongType(),
        "float": spark.FloatType(),
        "double": spark.DoubleType(),
        "string": spark.StringType(),
        "binary": spark.BinaryType(),
        "date": spark.DateType(),
        "timestamp": spark.TimestampType(),
        "timestamp_ntz": spark.TimestampNTZType(),
        "void": spark.NullType(),
    }
    return plain[type_name(kind)]
