# ruff: noqa: E501 - a column is a line
"""Rows with edges and the expressions that Spark and our compiler are asked over them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal as D

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
US = pa.timestamp("us", tz="UTC")
STRUCT = pa.struct(
    [pa.field("a", pa.int32()), pa.field("B", pa.string()), pa.field("c", pa.struct([("d", pa.float64())]))]
)


def _time(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


# name, type, nullable, values: eight rows, of which the last is all null where it may be.
COLUMNS: list[tuple[str, pa.DataType, bool, list[object]]] = [
    ("b", pa.bool_(), True, [True, False, None, True, False, None, True, None]),
    ("c", pa.bool_(), True, [True, True, True, False, False, False, None, None]),
    ("t", pa.int8(), True, [-128, 127, 0, 1, -1, 5, 7, None]),
    ("s", pa.int16(), True, [-32768, 32767, 0, 1, -1, 5, 300, None]),
    ("i", pa.int32(), True, [-(2**31), 2**31 - 1, 0, 1, -1, 7, -13, None]),
    ("l", pa.int64(), True, [-(2**63), 2**63 - 1, 0, 1, -1, 2**53 + 1, -1500, None]),
    ("m", pa.int32(), True, [-7, 7, 0, 3, -3, 100, -1, None]),
    ("m2", pa.int64(), True, [-700, 75, 0, 3, -3, 1005, -1, None]),
    ("z", pa.int32(), False, [2, -2, 3, -3, 1, 10, 100, 7]),
    ("zero", pa.int32(), False, [0, 1, 0, 2, 0, 3, 0, 4]),
    ("f", pa.float32(), True, [0.1, -1.5, 0.0, -0.0, NAN, INF, 3.4e38, None]),
    ("d", pa.float64(), True, [0.1, -2.5, 0.0, -0.0, NAN, -INF, 1e300, None]),
    ("e", pa.float64(), True, [2.5, 0.1, -0.0, 7.25, NAN, INF, -3.5, None]),
    ("p", pa.decimal128(10, 2), True, [D("1.25"), D("-2.50"), D("0.00"), D("99999999.99"), D("-0.01"), D("7.00"), D("3.35"), None]),
    ("q", pa.decimal128(20, 6), True, [D("1.250000"), D("-12345678901234.567891"), D("0.000001"), D("3"), D("-0.5"), D("0.05"), D("2.000005"), None]),
    ("w", pa.decimal128(38, 10), True, [D("1234567890123456789012345678.0123456789"), D("-1"), D("0.0000000001"), D("3"), D("-0.5"), D("1"), D("2.25"), None]),
    ("h", pa.decimal128(5, 3), False, [D("1.000"), D("-0.003"), D("0.500"), D("12.345"), D("-99.999"), D("3.000"), D("0.125"), D("7.7")]),
    ("x", pa.string(), True, ["Berlin", "", "San José", "straße", "  pad ", "a,b,,c", "ΑΣ line\nend", None]),
    ("y", pa.string(), True, ["Ber", "x", None, "STRASSE", "%_\\", "b", "日本語テキスト", None]),
    ("k", pa.string(), False, ["42", "-7", "+5", " 12 ", "0", "007", "100", "9"]),
    ("kd", pa.string(), False, ["1.5", "-2.5e3", "+.5", " 12. ", "0", "7.005", "1e-2", "9.995"]),
    ("kt", pa.string(), False, ["2024-02-29 12:34:56.789", "1969-12-31 23:59:59", "2024-01-01", "2024-01-01T10:20", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2000-06-15 01:02:03.4", "1970-01-01 00:00:00"]),
    ("kb", pa.string(), False, ["true", "F", "yes", "0", " No ", "T", "1", "n"]),
    ("dt", pa.date32(), True, [date(2024, 2, 29), date(1969, 12, 31), date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2000, 6, 15), date(2023, 12, 31), None]),
    ("ts", US, True, [_time(2024, 2, 29, 12, 34, 56, 789000), _time(1969, 12, 31, 23, 59, 59, 999999), _time(1970, 1, 1), _time(1900, 1, 1), _time(9999, 12, 31, 23, 59, 59, 999999), _time(2000, 6, 15, 1, 2, 3, 4), _time(2023, 12, 31, 0, 0, 1), None]),
    ("nz", pa.timestamp("us"), True, [datetime(2024, 2, 29, 12, 34, 56), datetime(1969, 12, 31, 23, 0), datetime(1970, 1, 1), datetime(2024, 1, 1), datetime(2001, 1, 1), datetime(2000, 6, 15), datetime(2023, 12, 31), None]),
    ("st", STRUCT, True, [{"a": 1, "B": "q", "c": {"d": 1.5}}, {"a": None, "B": None, "c": None}, {"a": -5, "B": "", "c": {"d": None}}, None, None, {"a": 7, "B": "z", "c": {"d": -0.0}}, {"a": 0, "B": "Q", "c": {"d": 2.0}}, None]),
    ("ar", pa.list_(pa.int32()), True, [[1, 2, 3], [], [None], None, [5], [7, 8], [9, 9, 9, 9], None]),
    ("two", pa.list_(pa.string()), True, [["a", "b"], ["c", None], ["", "x"], None, ["p", "q"], ["r", "s"], ["u", "v"], None]),
]  # fmt: skip
SCHEMA = pa.schema([pa.field(name, kind, nullable) for name, kind, nullable, _ in COLUMNS])
TABLE = pa.table([pa.array(values, kind) for _, kind, _, values in COLUMNS], schema=SCHEMA)

EXPRESSIONS = r"""
floor(if(isnan(d), d, 1.5D))
ceil(if(isnan(f), f, 1.5F))
p / cast(3 as int)
p / int(3)
p / 3L
p / -3L
p / 3::int
q / cast(7 as bigint)
p % cast(3 as int)
3Y * 1.25
-128Y
-9223372036854775808L
cast(-3 as double)
cast(-1.5 as float)
-1.5D
i
z
1
-2147483648
2147483648
-9223372036854775808
9223372036854775808
0.908
1.50
100.0
0.0
1e3
1.5D
2L
3S
4Y
1.5BD
'text'
'it\'s'
'\d\\d\n'
r'\d'
true
null
timestamp'2024-01-01 00:00:00'
timestamp'2024-01-01 10:11:12.5'
date'2024-02-29'
m + 1
m + z
t + z
m + m2
m2 - m
m * z
m * 1.5
m2 * 0.908
m2 * 0.908 + 1
- m
-p
+m
m / z
m2 / z
m / 0.3
p / z
p / h
p / 3
q / h
q / 7
w / h
p / 0.01
p + h
p - q
p * h
p * q
q * q
w + p
w - 1
w * 0.5
w / 3
p + 1
p + m
p + m2
p * 2
1 - p
p % z
h % 0.7
m % z
m2 % 7
d % 3.5D
m div z
m2 div 7
d + e
d * e
d - 1
d / 2
e / z
f + f
f + z
f * 2
f + d
p + d
d + 0.1
t + t % 1Y
abs(m)
abs(p)
abs(d)
negative(m)
mod(m, z)
round(p)
round(p, 1)
round(h, 2)
round(q, 3)
round(p, -1)
round(m, -1)
round(m, 2)
round(w, 2)
floor(if(isnan(d) or abs(d) > 1e18D, 1.5D, d))
floor(p)
floor(q)
floor(m)
ceil(if(isnan(e) or abs(e) > 1e18D, 1.5D, -e))
ceil(p)
ceil(h)
ceil(q)
sqrt(e)
sign(e)
sign(m)
m & z
m | z
m ^ 5
~m
m = z
m <> z
m != 3
m == 7
m < z
m <= 3
m > 1.5
m >= z
p > 1
p = 1.25
p < q
p >= w
p > 0.5D
l > 9007199254740992D
l = i
f = d
f > 0.1
d = e
d < e
d <= e
d > e
d >= e
d <> e
d <=> e
e = double('NaN') or true
m <=> z
m <=> null
null <=> null
null = null
null < null
b <=> c
x = y
x < y
x <=> y
ts > '2024-01-01'
ts < timestamp'2000-01-01 00:00:00'
dt >= '2000-01-01'
dt < ts
ts = dt
b and c
b or c
not b
b and null
b or null
null and false
!c
b = c
b is true
b is false
b is not true
b is null
x is not null
isnull(x)
isnotnull(z)
isnan(d)
m in (1, 3, 7)
m in (1, 3, null)
m not in (7, null)
m in (3.0, 7.5)
d in (0.1D, double('NaN'))
x in ('Berlin', '')
m in (z, 3)
p in (1.25, 7)
ts in (timestamp'1970-01-01 00:00:00')
m between -3 and 7
m not between z and 100
p between 0 and 5.5
x like 'S%'
x like '%e%'
x like '_erlin'
x not like '%i%'
x like '%\n%'
x like ''
y like '\%\_\\\\'
x like '%!%%' escape '!'
x ilike 'b%'
x ilike '%JOSÉ'
x rlike '^[A-Z]'
x rlike 'n$'
x rlike '\\s'
x rlike 'l.ne.end'
x rlike '(a|e)r'
regexp_like(x, '[0-9]+|,')
regexp_extract(x, '([a-z]+)(,)', 1)
regexp_extract(x, '([a-z]+)(,)', 2)
regexp_extract(x, '[a-z]+', 0)
regexp_extract(x, '(z)?e(r)')
regexp_extract(x, '[a-z]+$', 0)
regexp_replace(x, '[aeiou]', '*')
regexp_replace(x, '\\s+', '')
case when m > 3 then 'big' when m > 0 then 'small' else 'none' end
case when m > 3 then 1 end
case m when 3 then 'three' when 7 then 'seven' end
case when b then m else p end
case when b then 1 else 2.5 end
case when b then d else m end
case when zero <> 0 then 100 / zero else 0 end
case when zero = 0 then null else m2 % zero end
case when b then null else 3 end
if(zero = 0, 0, 10 div zero)
if(b, x, y)
if(c, ts, dt)
zero <> 0 and 10 / zero > 4
zero = 0 or 10 / zero > 4
coalesce(m, 0)
coalesce(x, y, 'none')
coalesce(p, m)
coalesce(null, m)
nvl(d, 0)
ifnull(x, k)
nvl2(x, 1, 2)
nullif(m, 7)
nullif(z, 1)
greatest(m, z)
greatest(d, e)
least(d, e)
least(m, z, 5)
greatest(x, y)
greatest(p, 1)
least(ts, timestamp'2000-01-01 00:00:00')
cast(m as bigint)
cast(l as double)
cast(l as float)
cast(m as double)
cast(m as tinyint)
m::smallint
cast(m as decimal(12,2))
cast(m2 as decimal(10,4))
cast(p as decimal(20,6))
cast(p as decimal(12,1))
cast(q as decimal(18,2))
cast(p as int)
cast(q as bigint)
cast(p as double)
cast(q as double)
cast(w as double)
cast(p as float)
cast(if(isnan(e) or abs(e) > 1e9, 0D, e) as int)
cast(if(isnan(d) or abs(d) > 1e9, 1.9D, -d) as bigint)
cast(d as float)
cast(f as double)
cast(m as string)
cast(b as string)
cast(p as string)
cast(dt as string)
cast(ts as string)
cast(nz as string)
cast(b as int)
cast(m as boolean)
cast(d as boolean)
cast(k as int)
cast(k as bigint)
int(k)
double(kd)
cast(kd as double)
cast(kd as decimal(10,2))
cast(kb as boolean)
cast(kt as timestamp)
cast(substring(kt, 1, 10) as date)
cast(ts as date)
cast(dt as timestamp)
cast(ts as bigint)
cast(m2 as timestamp)
date(ts)
to_date(ts)
to_date(substring(kt, 1, 10))
to_timestamp(kt)
upper(x)
lower(x)
upper(y)
lower(y)
length(x)
length(y)
char_length(k)
substring(x, 2, 3)
substring(x, -3, 2)
substring(x, -3, 5)
substring(x, 0, 2)
substring(x, 2)
substring(y, -2)
substr(y, 3, 100)
substring(x, 3, 0)
substring(x, -10, 6)
left(y, 2)
right(x, 3)
concat(x, '-', y)
x || y
x || m
concat(m, p)
concat_ws('-', x, y)
concat_ws(',', x)
trim(x)
ltrim(x)
rtrim(x)
trim(both 'B' from x)
trim(leading 'a' from x)
replace(x, 'a', 'oo')
replace(x, ',')
replace(x, '', 'q')
contains(x, 'an')
startswith(x, 'S')
endswith(x, 'e')
reverse(y)
repeat(x, 2)
lpad(x, 8, '*')
rpad(x, 4, ' ')
lpad(y, 3)
split(x, ',')
split(x, ',')[0]
split(x, '\\.')
split(k, ' ')[0]
split_part(x, ',', 2)
split_part(x, ',', -1)
split_part(x, ',', 9)
size(split(x, ','))
size(ar)
get(ar, 0)
get(ar, 5)
two[1]
element_at(two, 1)
st.a
st.b
st.c.d
st.a + 1
st['a']
year(dt)
year(ts)
month(ts)
day(ts)
dayofmonth(dt)
quarter(dt)
dayofyear(dt)
dayofweek(dt)
weekday(ts)
weekofyear(dt)
hour(ts)
minute(ts)
second(ts)
hour(nz)
year(nz)
hour(dt)
extract(year from dt)
extract(hour from ts)
date_trunc('year', ts)
date_trunc('quarter', ts)
date_trunc('MONTH', ts)
date_trunc('week', ts)
date_trunc('day', ts)
date_trunc('hour', ts)
date_trunc('minute', ts)
date_trunc('second', ts)
date_trunc('millisecond', ts)
trunc(dt, 'month')
trunc(dt, 'week')
unix_timestamp(ts)
unix_seconds(ts)
unix_millis(ts)
unix_micros(ts)
timestamp_seconds(m2)
timestamp_millis(m2)
timestamp_micros(m2)
date_add(if(year(dt) < 9999, dt, null), 30)
date_sub(if(year(dt) > 1, dt, null), 3)
dt - 0
datediff(dt, date'2000-01-01')
datediff(ts, dt)
date_format(ts, 'yyyy-MM-dd')
date_format(ts, 'HH:mm:ss')
date_format(dt, 'yyyy/MM')
if(year(ts) < 9999, ts, null) + interval 1 day
ts - interval 90 minutes
if(year(ts) < 9999, ts, null) + interval '2' hours
if(year(dt) < 9999, dt, null) + interval 1 day
ts - interval 1 week
h + h
h - 1
h * h
h / h
z + 1
z * z
z - 1L
-z
-h
abs(z)
abs(h)
z / 2
z % 2
z div 2
floor(z)
floor(h)
round(z)
round(z, -1)
round(h)
sqrt(z)
z = 2
z > h
z in (1, 2)
h between 0 and 1
k like '4%'
k rlike '4'
k || 'x'
upper(k)
length(k)
substring(k, 1, 1)
split(k, ',')
split(k, ',')[0]
split_part(k, ',', 1)
regexp_extract(k, '([0-9])', 1)
regexp_replace(k, '[0-9]', 'd')
trim(k)
lpad(k, 5, '0')
replace(k, '4', '5')
contains(k, '4')
cast(z as tinyint)
cast(z as bigint)
cast(z as double)
cast(z as string)
cast(z as decimal(12,2))
cast(z as decimal(5,2))
cast(z as timestamp)
cast(z as boolean)
cast(h as decimal(4,1))
cast(h as decimal(10,5))
cast(h as int)
cast(h as double)
cast(h as string)
cast(date'2024-02-29' as timestamp)
cast(timestamp'2024-01-01 10:11:12.5' as date)
cast(timestamp'2024-01-01 10:11:12.5' as string)
cast(timestamp'2024-01-01 10:11:12.5' as bigint)
timestamp_micros(z)
unix_micros(timestamp_micros(z))
unix_timestamp(timestamp_seconds(z))
year(date'2024-02-29')
hour(timestamp_seconds(z))
date_trunc('hour', timestamp_seconds(z))
trunc(date'2024-02-29', 'month')
date_format(timestamp_seconds(z), 'yyyy')
timestamp_seconds(z) + interval 1 hour
date'2024-02-29' + interval 1 day
date'2024-02-29' + 1
date_add(date'2024-02-29', z)
datediff(date'2024-02-29', date'2024-01-01')
case when z > 1 then z else 0 end
if(z > 1, k, 'x')
coalesce(m, z)
nullif(z, 2)
greatest(z, 3)
z is null
z <=> 2
not (z = 2)
z = 2 and h > 0
concat_ws('-', k, x, 'end')
sign(z)
repeat(k, 2)
reverse(k)
size(split(k, ','))
z & 1
true and true
cast(double(z) as int)
cast(h as bigint)
cast(z as float)
coalesce(1, z)
p = 7
h > 1.5
h in (1, 0.5)
case when h > 0 then 1 else 0 end
greatest(h, 1)
coalesce(h, 1)
z = 2.0
m2 + 0.5
2 * h
1 / h
7 % z
1 - z
"""


def cases() -> list[str]:
    return [line for line in EXPRESSIONS.splitlines() if line]
