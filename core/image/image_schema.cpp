// Types of the C Data Interface as a list of nodes, with a fingerprint over their formats.
#include <cstring>
#include <string_view>

#include "image/payload.hpp"

namespace penstock {

namespace {

constexpr int NESTING_MAX = 64;

struct Form {
    Shape shape;
    int64_t width = 0;
    bool wide = false;
};

int64_t number_after(std::string_view format, size_t at) { return std::stoll(std::string(format.substr(at))); }

int64_t decimal_width(std::string_view format) {  // "d:precision,scale[,bits]"
    const size_t first = format.find(',');
    const size_t second = format.find(',', first + 1);
    return second == std::string_view::npos ? 16 : number_after(format, second + 1) / 8;
}

int64_t temporal_width(std::string_view format) {
    switch (format.at(1)) {
        case 'd': return format.at(2) == 'D' ? 4 : 8;
        case 't': return format.at(2) == 's' || format.at(2) == 'm' ? 4 : 8;
        case 'i': return format.at(2) == 'M' ? 4 : format.at(2) == 'D' ? 8 : 16;
        default: return 8;  // timestamps and durations
    }
}

Form nested_form(std::string_view format) {
    switch (format.at(1)) {
        case 'l':
        case 'm': return {Shape::List};
        case 'L': return {Shape::List, 0, true};
        case 'v': return {Shape::ListView, 0, format.at(2) == 'L'};
        case 'w': return {Shape::FixedList, number_after(format, 3)};
        case 's': return {Shape::Struct};
        case 'r': return {Shape::RunEnds};
        case 'u': return {format.at(2) == 'd' ? Shape::DenseUnion : Shape::SparseUnion};
        default: throw ImageFault("no image is known for the format '" + std::string(format) + "'");
    }
}

Form form_of(std::string_view format) {
    switch (format.empty() ? '\0' : format[0]) {
        case 'n': return {Shape::Null};
        case 'b': return {Shape::Bits};
        case 'c':
        case 'C': return {Shape::Fixed, 1};
        case 's':
        case 'S':
        case 'e': return {Shape::Fixed, 2};
        case 'i':
        case 'I':
        case 'f': return {Shape::Fixed, 4};
        case 'l':
        case 'L':
        case 'g': return {Shape::Fixed, 8};
        case 'z':
        case 'u': return {Shape::Bytes};
        case 'Z':
        case 'U': return {Shape::Bytes, 0, true};
        case 'v': return {Shape::View, 16};
        case 'd': return {Shape::Fixed, decimal_width(format)};
        case 'w': return {Shape::Fixed, number_after(format, 2)};
        case 't': return {Shape::Fixed, temporal_width(format)};
        case '+': return nested_form(format);
        default: throw ImageFault("no image is known for the format '" + std::string(format) + "'");
    }
}

int32_t buffers_of(Shape shape) {
    switch (shape) {
        case Shape::Null:
        case Shape::RunEnds: return 0;
        case Shape::FixedList:
        case Shape::Struct:
        case Shape::SparseUnion: return 1;
        case Shape::Bytes:
        case Shape::ListView: return 3;
        default: return 2;
    }
}

// "+ud:0,5": the codes that the children go by.
void read_codes(std::string_view format, ImageNode& node) {
    node.child_of.fill(-1);
    size_t at = 4;
    for (int8_t child = 0; at < format.size() && child >= 0; child++) {
        const auto code = static_cast<size_t>(number_after(format, at));
        node.child_of.at(code) = child;
        const size_t comma = format.find(',', at);
        at = comma == std::string_view::npos ? format.size() : comma + 1;
    }
}

class Flattener {
   public:
    explicit Flattener(ImageSchema& schema) : schema_(schema) {}

    int32_t add(const ArrowSchema& type, const std::string& path, int depth) {
        if (depth > NESTING_MAX) throw ImageFault("column " + path + " is nested more than 64 deep");
        const std::string_view format = type.format;
        const Form form = form_of(format);
        mix(format);
        const auto number = static_cast<int32_t>(schema_.nodes.size());
        ImageNode& node = schema_.nodes.emplace_back();
        node.shape = form.shape;
        node.width = form.width;
        node.wide = form.wide;
        node.buffers = buffers_of(form.shape);
        node.path = path;
        if (form.shape == Shape::SparseUnion || form.shape == Shape::DenseUnion) read_codes(format, node);
        add_below(type, number, path, depth);
        mix("}");
        return number;
    }

   private:
    // The list of nodes grows meanwhile, so the node is found again by its number each time.
    void add_below(const ArrowSchema& type, int32_t number, const std::string& path, int depth) {
        for (int64_t c = 0; c < type.n_children; c++) {
            const ArrowSchema& child = *type.children[c];
            const std::string name = child.name == nullptr ? "" : child.name;
            const int32_t added = add(child, path.empty() ? name : path + "." + name, depth + 1);
            schema_.nodes[static_cast<size_t>(number)].children.push_back(added);
        }
        if (type.dictionary == nullptr) return;
        mix("#");
        const int32_t added = add(*type.dictionary, path + ".dictionary", depth + 1);
        schema_.nodes[static_cast<size_t>(number)].dictionary = added;
    }

    void mix(std::string_view text) {  // FNV-1a; it guards against mistakes, not against attackers
        for (const char letter : text) hash_byte(static_cast<uint8_t>(letter));
        hash_byte(0);
    }

    void hash_byte(uint8_t byte) { schema_.fingerprint = (schema_.fingerprint ^ byte) * 0x100000001b3ULL; }

    ImageSchema& schema_;
};

}  // namespace

ImageSchema::ImageSchema(const ArrowSchema& schema) : fingerprint(0xcbf29ce484222325ULL) {
    if (std::strcmp(schema.format, "+s") != 0) throw ImageFault("an image holds a record batch, not a single array");
    Flattener(*this).add(schema, "", 0);
    nodes[0].buffers = 0;  // a batch has no nulls of its own
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) node->row_bytes = fixed_payload(*this, *node);
}

}  // namespace penstock
