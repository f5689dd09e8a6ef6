// Formats of the C Data Interface into Types, and arrays into Columns.
#include "kernels/columns/column.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace penstock {

namespace {

constexpr int NESTING_MAX = 64;

Type fixed(Kind kind, int32_t width, Meaning meaning = Meaning::Plain) {
    Type type;
    type.kind = kind;
    type.width = width;
    type.meaning = meaning;
    return type;
}

Type offsets_kind(Kind kind, bool wide, Meaning meaning = Meaning::Plain) {
    Type type;
    type.kind = kind;
    type.wide = wide;
    type.meaning = meaning;
    return type;
}

Type timestamp(std::string_view format) {  // "tsu:UTC"
    Type type = fixed(Kind::Int, 8, Meaning::Timestamp);
    const char unit = format[2];
    type.per_second = unit == 's' ? 1 : unit == 'm' ? 1'000 : unit == 'u' ? 1'000'000 : 1'000'000'000;
    const std::string_view zone = format.substr(4);
    type.zoned = !zone.empty();
    type.utc = zone == "UTC";
    return type;
}

Type temporal(std::string_view format) {
    switch (format[1]) {
        case 'd': return format[2] == 'D' ? fixed(Kind::Int, 4, Meaning::Date) : fixed(Kind::Int, 8, Meaning::OtherTemporal);
        case 't': return fixed(Kind::Int, format[2] == 's' || format[2] == 'm' ? 4 : 8, Meaning::OtherTemporal);
        case 's': return timestamp(format);
        case 'D': return fixed(Kind::Int, 8, Meaning::OtherTemporal);
        default: return fixed(Kind::Fixed, format[2] == 'M' ? 4 : format[2] == 'D' ? 8 : 16, Meaning::OtherTemporal);
    }
}

Type decimal(std::string_view format) {  // "d:precision,scale[,bits]"
    const std::string text(format.substr(2));
    const size_t scale = text.find(',') + 1, bits = text.find(',', scale) + 1;
    Type type = fixed(Kind::Decimal, bits == 0 ? 16 : std::stoi(text.substr(bits)) / 8);
    type.digits = std::stoi(text);
    type.scale = std::stoi(text.substr(scale));
    return type;
}

Type map() {
    Type type = offsets_kind(Kind::List, false);
    type.map = true;
    return type;
}

Type nested(std::string_view format) {
    switch (format[1]) {
        case 'l': return offsets_kind(Kind::List, false);
        case 'L': return offsets_kind(Kind::List, true);
        case 'm': return map();
        case 's': return fixed(Kind::Struct, 0);
        case 'w': return fixed(Kind::FixedList, std::stoi(std::string(format.substr(3))));
        default: return Type{};
    }
}

Type of_format(std::string_view format) {
    switch (format.empty() ? '\0' : format[0]) {
        case 'n': return fixed(Kind::Null, 0);
        case 'b': return fixed(Kind::Bool, 0);
        case 'c': return fixed(Kind::Int, 1);
        case 'C': return fixed(Kind::UInt, 1);
        case 's': return fixed(Kind::Int, 2);
        case 'S': return fixed(Kind::UInt, 2);
        case 'i': return fixed(Kind::Int, 4);
        case 'I': return fixed(Kind::UInt, 4);
        case 'l': return fixed(Kind::Int, 8);
        case 'L': return fixed(Kind::UInt, 8);
        case 'e': return fixed(Kind::Float, 2);
        case 'f': return fixed(Kind::Float, 4);
        case 'g': return fixed(Kind::Float, 8);
        case 'z': return offsets_kind(Kind::Bytes, false);
        case 'Z': return offsets_kind(Kind::Bytes, true);
        case 'u': return offsets_kind(Kind::Bytes, false, Meaning::Text);
        case 'U': return offsets_kind(Kind::Bytes, true, Meaning::Text);
        case 'd': return decimal(format);
        case 'w': return fixed(Kind::Fixed, std::stoi(std::string(format.substr(2))));
        case 't': return temporal(format);
        case '+': return nested(format);
        default: return Type{};
    }
}

Type parse(const ArrowSchema& schema, int depth) {
    if (depth > NESTING_MAX) throw std::invalid_argument("a type is nested more than 64 deep");
    Type type = of_format(schema.format);
    type.name = schema.name == nullptr ? "" : schema.name;
    type.nullable = (schema.flags & ARROW_NULLABLE) != 0;
    for (int64_t c = 0; c < schema.n_children; c++) type.children.push_back(parse(*schema.children[c], depth + 1));
    if (schema.dictionary != nullptr) type.dictionary = std::make_unique<Type>(parse(*schema.dictionary, depth + 1));
    return type;
}

Column view(const Type& type, const ArrowArray& array) {
    Column column;
    column.type = &type;
    column.array = &array;
    column.length = array.length;
    column.offset = array.offset;
    const bool has_validity = array.n_buffers > 0 && type.kind != Kind::Null && array.null_count != 0;
    column.validity = has_validity ? static_cast<const uint8_t*>(array.buffers[0]) : nullptr;
    if (type.kind == Kind::Bytes) {
        column.offsets = array.buffers[1];
        column.values = static_cast<const uint8_t*>(array.buffers[2]);
    } else if (type.kind == Kind::List) {
        column.offsets = array.buffers[1];
    } else if (array.n_buffers > 1) {
        column.values = static_cast<const uint8_t*>(array.buffers[1]);
    }
    if (type.kind != Kind::Other) {
        for (size_t c = 0; c < type.children.size(); c++)
            column.children.push_back(view(type.children[c], *array.children[c]));
    }
    if (type.dictionary)
        column.dictionary = std::make_unique<Column>(view(*type.dictionary, *array.dictionary));
    return column;
}

double half(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const double mantissa = bits & 1023;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
    return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(mantissa + 1024, exponent - 25);
}

}  // namespace

bool Type::readable() const {
    if (kind == Kind::Other || (dictionary && !dictionary->readable())) return false;
    return std::all_of(children.begin(), children.end(), [](const Type& child) { return child.readable(); });
}

Type parse_type(const ArrowSchema& schema) { return parse(schema, 0); }

double Column::real(int64_t i) const {
    switch (type->width) {
        case 2: return half(load<uint16_t>(offset + i));
        case 4: return load<float>(offset + i);
        default: return load<double>(offset + i);
    }
}

Batch::Batch(const Type& root, ArrowArray&& array) : rows(array.length), array_(array) {
    if (array_.offset != 0) throw std::invalid_argument("a batch begins behind its columns");  // pyarrow slices columns
    array.release = nullptr;
    columns.reserve(root.children.size());
    for (size_t c = 0; c < root.children.size(); c++)
        columns.push_back(view(root.children[c], *array_.children[c]));
}

Batch::~Batch() {
    if (array_.release != nullptr) array_.release(&array_);
}

}  // namespace penstock
