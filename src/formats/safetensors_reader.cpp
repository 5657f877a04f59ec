// The safetensors container: a length, a JSON header, one byte buffer.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "formats/model_file.h"
#include "internal.h"
#include "text.h"

namespace forge {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are read as little-endian");

constexpr std::uint64_t most_header_bytes = 100'000'000;  // the format's own limit

std::optional<DType> type_named(std::string_view name) {
    constexpr std::pair<std::string_view, DType> types[] = {
        {"BOOL", DType::boolean},    {"U8", DType::u8},   {"I8", DType::i8},   {"F8_E4M3", DType::f8_e4m3},
        {"F8_E5M2", DType::f8_e5m2}, {"U16", DType::u16}, {"I16", DType::i16}, {"F16", DType::f16},
        {"BF16", DType::bf16},       {"U32", DType::u32}, {"I32", DType::i32}, {"F32", DType::f32},
        {"U64", DType::u64},         {"I64", DType::i64}, {"F64", DType::f64}};
    for (const auto& [text, type] : types)
        if (text == name) return type;
    return std::nullopt;
}

struct Entry {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::uint64_t> offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Receives the header's JSON piece by piece and accepts exactly
//   {name: {"dtype": text, "shape": [..], "data_offsets": [..]}, "__metadata__": {text: text}}
// so that a large or deep header is refused at its first wrong piece, without
// a document being built from it.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit HeaderHandler(const std::string& source) : source_(source) {}

    std::vector<Entry> entries;
    std::map<std::string, std::string> metadata;

    bool start_object(std::size_t) override {
        if (state_ == State::start)
            state_ = State::names;
        else if (state_ == State::tensor)
            state_ = State::fields;
        else if (state_ == State::metadata)
            state_ = State::metadata_keys;
        else
            unexpected("an object");
        return true;
    }
    bool end_object() override {
        if (state_ == State::fields) {
            const Entry& entry = entries.back();
            if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets)
                fail("{}: tensor '{}' lacks its {} in the header", source_, printable(entry.name),
                     !entry.has_dtype   ? "dtype"
                     : !entry.has_shape ? "shape"
                                        : "data_offsets");
            state_ = State::names;
        } else if (state_ == State::metadata_keys) {
            state_ = State::names;
        } else {
            state_ = State::end;
        }
        return true;
    }
    bool key(string_t& text) override {
        if (state_ == State::names) {
            if (!names_.insert(text).second)
                fail("{}: the header names '{}' twice", source_, printable(text));
            if (text == "__metadata__") {
                state_ = State::metadata;
            } else {
                entries.push_back({});
                entries.back().name = text;
                state_ = State::tensor;
            }
        } else if (state_ == State::metadata_keys) {
            metadata_key_ = text;
            state_ = State::metadata_value;
        } else {
            field(text);
        }
        return true;
    }
    bool string(string_t& text) override {
        if (state_ == State::dtype) {
            entries.back().dtype = text;
            state_ = State::fields;
        } else if (state_ == State::metadata_value) {
            metadata[metadata_key_] = text;
            state_ = State::metadata_keys;
        } else {
            unexpected("a string");
        }
        return true;
    }
    bool start_array(std::size_t) override {
        if (state_ == State::shape)
            state_ = State::shape_list;
        else if (state_ == State::offsets)
            state_ = State::offsets_list;
        else
            unexpected("an array");
        return true;
    }
    bool end_array() override {
        state_ = State::fields;
        return true;
    }
    bool number_unsigned(std::uint64_t value) override {
        Entry* entry = entries.empty() ? nullptr : &entries.back();
        if (state_ == State::shape_list) {
            if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
                entry->shape.size() >= 16)
                fail("{}: the shape of tensor '{}' is implausible", source_, printable(entry->name));
            entry->shape.push_back(static_cast<std::int64_t>(value));
        } else if (state_ == State::offsets_list) {
            if (entry->offsets.size() >= 2)
                fail("{}: tensor '{}' has more than two data_offsets", source_, printable(entry->name));
            entry->offsets.push_back(value);
        } else {
            unexpected("a number");
        }
        return true;
    }
    bool number_integer(std::int64_t) override { unexpected("a negative number"); }
    bool number_float(double, const string_t&) override { unexpected("a fraction"); }
    bool null() override { unexpected("null"); }
    bool boolean(bool) override { unexpected("a boolean"); }
    bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
        fail("{}: the header is no valid JSON at its byte {}; the file is damaged", source_, position);
    }

  private:
    enum class State {
        start,
        names,
        tensor,
        fields,
        dtype,
        shape,
        shape_list,
        offsets,
        offsets_list,
        metadata,
        metadata_keys,
        metadata_value,
        end,
    };

    void field(const std::string& text) {
        Entry& entry = entries.back();
        bool* seen = nullptr;
        if (text == "dtype") {
            state_ = State::dtype;
            seen = &entry.has_dtype;
        }
        if (text == "shape") {
            state_ = State::shape;
            seen = &entry.has_shape;
        }
        if (text == "data_offsets") {
            state_ = State::offsets;
            seen = &entry.has_offsets;
        }
        if (!seen)
            fail("{}: tensor '{}' has an unknown field '{}' in the header", source_, printable(entry.name),
                 printable(text));
        if (*seen)
            fail("{}: tensor '{}' has its {} twice in the header", source_, printable(entry.name), text);
        *seen = true;
    }

    [[noreturn]] void unexpected(std::string_view found) const {
        const std::string where =
            state_ == State::start      ? "at the start"
            : state_ >= State::metadata ? "in __metadata__ (strings only)"
            : entries.empty()           ? "at the top level"
                              : "in the description of tensor '" + printable(entries.back().name) + "'";
        fail("{}: the header has {} {}, where it does not belong; the file is damaged", source_, found,
             where);
    }

    const std::string& source_;
    State state_ = State::start;
    std::string metadata_key_;
    std::unordered_set<std::string> names_;
};

Tensor make_tensor(const Entry& entry, std::span<const std::byte> buffer, const std::string& source) {
    const std::string name = printable(entry.name);
    const std::optional<DType> dtype = type_named(entry.dtype);
    if (!dtype)
        fail(ErrorKind::unsupported,
             "{}: tensor '{}' has dtype {}, which this version of Forge does not read", source, name,
             printable(entry.dtype));
    if (entry.offsets.size() != 2)
        fail("{}: tensor '{}' has {} data_offsets instead of two", source, name, entry.offsets.size());
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (begin > end || end > buffer.size())
        fail("{}: tensor '{}' lies at bytes {} to {} of a buffer of {}; the file is truncated or damaged",
             source, name, begin, end, buffer.size());
    // A product of non-zero dimensions above the buffer's size is already wrong,
    // so nothing here can overflow.
    std::uint64_t elements = 1;
    const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
    for (std::int64_t dim : entry.shape) {
        if (empty) {
            elements = 0;
            break;
        }
        if (static_cast<std::uint64_t>(dim) > (buffer.size() + 1) / elements) {
            elements = buffer.size() + 1;
            break;
        }
        elements *= static_cast<std::uint64_t>(dim);
    }
    const std::uint64_t size = end - begin;
    if (elements > buffer.size() || elements * size_of(*dtype) != size)
        fail(
            "{}: tensor '{}' has {} bytes of data, which is not what its shape and dtype {} need; the file "
            "is damaged",
            source, name, size, entry.dtype);
    Tensor tensor;
    tensor.name = entry.name;
    tensor.shape = entry.shape;
    tensor.dtype = *dtype;
    tensor.data = buffer.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
    return tensor;
}

// The format allows neither gaps nor overlaps.
void check_cover(const std::vector<Tensor>& tensors, std::span<const std::byte> buffer,
                 const std::string& source) {
    std::size_t covered = 0;
    const Tensor* last = nullptr;
    for (const Tensor& tensor : tensors) {
        const auto begin = static_cast<std::size_t>(tensor.data.data() - buffer.data());
        if (begin < covered)
            fail("{}: the data of tensors '{}' and '{}' overlap", source, printable(last->name),
                 printable(tensor.name));
        if (begin > covered)
            fail("{}: {} bytes before tensor '{}' belong to no tensor; the file is damaged", source,
                 begin - covered, printable(tensor.name));
        covered = begin + tensor.data.size();
        last = &tensor;
    }
    if (covered != buffer.size())
        fail("{}: the last {} bytes belong to no tensor; the file is damaged", source,
             buffer.size() - covered);
}

}  // namespace

void append_safetensors(std::span<const std::byte> bytes, const std::string& source,
                        std::shared_ptr<MappedFile> file, ModelFile& out) {
    if (bytes.size() < 8)
        fail("{}: a safetensors file begins with 8 bytes of length, but this one has {} bytes", source,
             bytes.size());
    std::uint64_t length;
    std::memcpy(&length, bytes.data(), 8);
    if (length > most_header_bytes)
        fail("{}: the header claims {} bytes; safetensors allow {}, so this is no safetensors file", source,
             length, most_header_bytes);
    if (length > bytes.size() - 8)
        fail(
            "{}: the header claims {} bytes, but only {} follow; the file is truncated or no safetensors "
            "file",
            source, length, bytes.size() - 8);
    const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
    if (length == 0 || text[0] != '{')
        fail("{}: the header should begin with '{{'; this is no safetensors file", source);
    HeaderHandler header(source);
    nlohmann::json::sax_parse(text, text + length, &header);

    const std::span<const std::byte> buffer = bytes.subspan(8 + static_cast<std::size_t>(length));
    std::vector<Tensor> tensors;
    tensors.reserve(header.entries.size());
    for (const Entry& entry : header.entries) {
        tensors.push_back(make_tensor(entry, buffer, source));
        tensors.back().file = file;
    }
    // In file order; an empty tensor comes before the one that starts at the same byte.
    std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
        return std::tuple(a.data.data(), a.data.size(), std::string_view(a.name)) <
               std::tuple(b.data.data(), b.data.size(), std::string_view(b.name));
    });
    check_cover(tensors, buffer, source);
    for (auto& [key, value] : header.metadata) out.metadata.set(key, value);
    out.tensors.insert(out.tensors.end(), std::make_move_iterator(tensors.begin()),
                       std::make_move_iterator(tensors.end()));
}

void parse_safetensors(std::span<const std::byte> bytes, const std::string& source, ModelFile& out) {
    out.format = ModelFormat::huggingface;
    if (out.path.empty()) out.path = source;
    out.metadata.source = source;
    append_safetensors(bytes, source, nullptr, out);
    out.index_names();
}

}  // namespace forge
