// GGUF's header: key-values, tensor table, data section (docs/formats.md).
// Every count and length is held against the bytes that are left before
// anything is allocated for it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "formats/model_file.h"
#include "internal.h"
#include "text.h"

namespace forge {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little-endian");

enum class ValueType : std::uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

// Bytes that a value of the type takes at least; 0 for an unknown type.
std::size_t least_bytes(ValueType type) {
    switch (type) {
        case ValueType::u8:
        case ValueType::i8:
        case ValueType::boolean:
            return 1;
        case ValueType::u16:
        case ValueType::i16:
            return 2;
        case ValueType::u32:
        case ValueType::i32:
        case ValueType::f32:
            return 4;
        case ValueType::u64:
        case ValueType::i64:
        case ValueType::f64:
        case ValueType::string:
            return 8;
        case ValueType::array:
            return 12;
    }
    return 0;
}

// Arrays hold vocabularies; the largest published ones have 262144 entries.
// The bound keeps a hostile file from growing eightfold in memory.
constexpr std::uint64_t most_array_elements = 1u << 25;
constexpr std::uint64_t most_name_bytes = 65535;
constexpr int most_array_depth = 4;

class Reader {
  public:
    Reader(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

    std::size_t position() const { return position_; }
    std::uint64_t left() const { return bytes_.size() - position_; }

    // what: completes "the file ends in ...".
    void need(std::uint64_t count, std::string_view what) const {
        if (count > left())
            fail(
                "{}: the file ends in {}, at byte {}: {} more bytes were expected, {} are left; it is "
                "truncated or "
                "damaged",
                source_, what, position_, count, left());
    }

    template <typename T>
    T read(std::string_view what) {
        need(sizeof(T), what);
        T value;
        std::memcpy(&value, bytes_.data() + position_, sizeof(T));
        position_ += sizeof(T);
        return value;
    }

    std::string_view string(std::string_view what) {
        const auto length = read<std::uint64_t>(what);
        need(length, what);
        const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_,
                                    static_cast<std::size_t>(length));
        position_ += static_cast<std::size_t>(length);
        return text;
    }

    // A key or a tensor name.
    std::string_view name(std::string_view what) {
        const std::size_t start = position_;
        const std::string_view text = string(what);
        if (text.empty()) fail("{}: {} at byte {} is empty", source_, what, start);
        if (text.size() > most_name_bytes)
            fail("{}: {} at byte {} is {} bytes long; names have at most {}", source_, what, start,
                 text.size(), most_name_bytes);
        if (text.find('\0') != std::string_view::npos)
            fail("{}: {} '{}' holds a zero byte", source_, what, printable(text));
        return text;
    }

    void skip(std::uint64_t count, std::string_view what) {
        need(count, what);
        position_ += static_cast<std::size_t>(count);
    }

  private:
    std::span<const std::byte> bytes_;
    const std::string& source_;
    std::size_t position_ = 0;
};

class MetadataReader {
  public:
    MetadataReader(Reader& in, const std::string& source, Metadata& out)
        : in_(in), source_(source), out_(out) {}

    void read_pair() {
        const std::string key(in_.name("a metadata key"));
        if (!keys_.insert(key).second) fail("{}: metadata key '{}' appears twice", source_, printable(key));
        what_ = "the value of metadata key '" + printable(key) + "'";
        const ValueType type = value_type();
        if (type == ValueType::array) {
            if (auto value = array(1)) out_.set(key, std::move(*value));
        } else {
            out_.set(key, scalar(type));
        }
    }

  private:
    ValueType value_type() {
        const auto id = in_.read<std::uint32_t>(what_);
        if (least_bytes(static_cast<ValueType>(id)) == 0)
            fail("{}: {} has type {}, which GGUF does not define", source_, what_, id);
        return static_cast<ValueType>(id);
    }

    bool boolean() {
        const auto byte = in_.read<std::uint8_t>(what_);
        if (byte > 1) fail("{}: {} should be a boolean (0 or 1), but its byte is {}", source_, what_, byte);
        return byte == 1;
    }

    std::int64_t small_integer(ValueType type) {
        switch (type) {
            case ValueType::u8:
                return in_.read<std::uint8_t>(what_);
            case ValueType::i8:
                return in_.read<std::int8_t>(what_);
            case ValueType::u16:
                return in_.read<std::uint16_t>(what_);
            case ValueType::i16:
                return in_.read<std::int16_t>(what_);
            case ValueType::u32:
                return in_.read<std::uint32_t>(what_);
            case ValueType::i32:
                return in_.read<std::int32_t>(what_);
            default:
                return in_.read<std::int64_t>(what_);
        }
    }

    MetaValue scalar(ValueType type) {
        switch (type) {
            case ValueType::f32:
                return static_cast<double>(in_.read<float>(what_));
            case ValueType::f64:
                return in_.read<double>(what_);
            case ValueType::boolean:
                return boolean();
            case ValueType::string:
                return std::string(in_.string(what_));
            case ValueType::u64:
                return in_.read<std::uint64_t>(what_);
            default:
                return small_integer(type);
        }
    }

    // nullopt for arrays that Metadata cannot hold: arrays of arrays, and of
    // integers above 2^63. No key that Forge reads is one.
    std::optional<MetaValue> array(int depth) {
        if (depth > most_array_depth)
            fail("{}: {} nests arrays more than {} deep", source_, what_, most_array_depth);
        const ValueType type = value_type();
        const auto count = in_.read<std::uint64_t>(what_);
        if (count > in_.left() / least_bytes(type))
            fail("{}: {} claims {} elements, more than the {} bytes that are left in the file can hold",
                 source_, what_, count, in_.left());
        elements_ += count;
        if (elements_ > most_array_elements)
            fail("{}: {} brings the metadata to {} array elements; at most {} are read", source_, what_,
                 elements_, most_array_elements);
        const auto n = static_cast<std::size_t>(count);
        switch (type) {
            case ValueType::array:
                for (std::size_t i = 0; i < n; ++i) array(depth + 1);
                return std::nullopt;
            case ValueType::string: {
                std::vector<std::string> list;
                list.reserve(n);
                for (std::size_t i = 0; i < n; ++i) list.emplace_back(in_.string(what_));
                return list;
            }
            case ValueType::boolean: {
                std::vector<bool> list(n);
                for (std::size_t i = 0; i < n; ++i) list[i] = boolean();
                return list;
            }
            case ValueType::f32:
            case ValueType::f64: {
                std::vector<double> list(n);
                for (double& value : list)
                    value = type == ValueType::f32 ? in_.read<float>(what_) : in_.read<double>(what_);
                return list;
            }
            default: {
                std::vector<std::int64_t> list(n);
                bool fits = true;
                for (std::int64_t& value : list) {
                    value = small_integer(type);
                    fits = fits && (type != ValueType::u64 || value >= 0);
                }
                return fits ? std::optional<MetaValue>(std::move(list)) : std::nullopt;
            }
        }
    }

    Reader& in_;
    const std::string& source_;
    Metadata& out_;
    std::string what_;
    std::unordered_set<std::string> keys_;  // also those that `out_` does not hold
    std::uint64_t elements_ = 0;
};

// A tensor and where its data should be, before the data section is known.
struct Placed {
    Tensor tensor;
    std::uint64_t offset;
    std::uint64_t size;
};

// Plain GGUF types have a DType; the others are blocks.
std::optional<DType> plain_type(std::uint32_t id) {
    switch (id) {
        case 0:
            return DType::f32;
        case 1:
            return DType::f16;
        case 24:
            return DType::i8;
        case 25:
            return DType::i16;
        case 26:
            return DType::i32;
        case 27:
            return DType::i64;
        case 28:
            return DType::f64;
        case 30:
            return DType::bf16;
        default:
            return std::nullopt;
    }
}

Placed read_tensor_info(Reader& in, const std::string& source, std::uint64_t alignment) {
    Placed placed;
    Tensor& tensor = placed.tensor;
    tensor.name = in.name("a tensor name");
    const std::string what = "the description of tensor '" + printable(tensor.name) + "'";
    const auto n_dims = in.read<std::uint32_t>(what);
    if (n_dims < 1 || n_dims > 4)
        fail("{}: {} says {} dimensions; GGUF tensors have 1 to 4", source, what, n_dims);
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t elements = 1, cols = 0;
    for (std::uint32_t i = 0; i < n_dims; ++i) {
        const auto dim = in.read<std::uint64_t>(what);
        if (dim == 0) fail("{}: {} has a dimension of 0", source, what);
        if (dim > most / elements) fail("{}: {} has more elements than 63 bits can count", source, what);
        elements *= dim;
        if (i == 0) cols = dim;
        tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(dim));
    }
    const auto type = in.read<std::uint32_t>(what);
    const std::optional<BlockSize> block = gguf_block_size(type);
    if (!block)
        fail(ErrorKind::unsupported,
             "{}: tensor '{}' has type id {}, which is withdrawn or newer than this version of "
             "Forge",
             source, printable(tensor.name), type);
    tensor.block = static_cast<GgufType>(type);
    const std::optional<DType> plain = plain_type(type);
    tensor.is_block = !plain;
    tensor.dtype = plain.value_or(DType::u8);
    const auto block_elements = static_cast<std::uint64_t>(block->elements);
    const auto block_bytes = static_cast<std::uint64_t>(block->bytes);
    if (cols % block_elements != 0)
        fail("{}: tensor '{}' has rows of {} elements, not a multiple of {}'s block of {}", source,
             printable(tensor.name), cols, gguf_type_name(type), block_elements);
    if (elements / block_elements > most / block_bytes)
        fail("{}: {} has more bytes than 63 bits can count", source, what);
    placed.size = elements / block_elements * block_bytes;
    placed.offset = in.read<std::uint64_t>(what);
    if (placed.offset % alignment != 0)
        fail("{}: tensor '{}' starts at offset {}, not a multiple of the alignment {}", source,
             printable(tensor.name), placed.offset, alignment);
    return placed;
}

std::uint64_t read_alignment(const Metadata& metadata, const std::string& source) {
    const std::int64_t alignment = metadata.integer("general.alignment", 32);
    if (alignment < 1 || alignment > (std::int64_t{1} << 30) ||
        !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
        fail("{}: general.alignment is {}; it must be a power of two, at most 2^30", source, alignment);
    return static_cast<std::uint64_t>(alignment);
}

void check_version(std::uint32_t version, const std::string& source) {
    if ((version & 0xffff) == 0)
        fail(ErrorKind::unsupported,
             "{}: this GGUF file is big-endian; Forge reads little-endian files only, so "
             "convert it again on an ordinary machine",
             source);
    if (version == 1)
        fail(ErrorKind::unsupported,
             "{}: GGUF version 1 is not read (versions 2 and 3 are); convert the model again "
             "with a newer converter",
             source);
    if (version > 3)
        fail(ErrorKind::unsupported,
             "{}: GGUF version {} is newer than this version of Forge, which reads versions 2 "
             "and 3",
             source, version);
}

// Offsets within the data section, each tensor's own.
void place_tensors(std::vector<Placed>& placed, std::span<const std::byte> data, const std::string& source) {
    std::vector<const Placed*> order;
    order.reserve(placed.size());
    for (const Placed& p : placed) {
        if (p.offset > data.size() || p.size > data.size() - p.offset)
            fail(
                "{}: tensor '{}' needs bytes {} to {} of the data section, which has {}; the file is "
                "truncated or "
                "damaged",
                source, printable(p.tensor.name), p.offset, p.offset + p.size, data.size());
        order.push_back(&p);
    }
    std::sort(order.begin(), order.end(),
              [](const Placed* a, const Placed* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); ++i)
        if (order[i - 1]->offset + order[i - 1]->size > order[i]->offset)
            fail("{}: the data of tensors '{}' and '{}' overlap", source,
                 printable(order[i - 1]->tensor.name), printable(order[i]->tensor.name));
}

}  // namespace

void append_gguf(std::span<const std::byte> bytes, const std::string& source,
                 std::shared_ptr<MappedFile> file, ModelFile& out) {
    Reader in(bytes, source);
    if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0)
        fail("{}: this is no GGUF file (it does not begin with the letters GGUF)", source);
    in.skip(4, "the header");
    check_version(in.read<std::uint32_t>("the header"), source);
    const auto tensor_count = in.read<std::uint64_t>("the header");
    const auto pair_count = in.read<std::uint64_t>("the header");
    // A pair takes at least 8 + 1 + 4 + 1 bytes, a tensor's entry 8 + 1 + 4 + 8 + 4 + 8.
    if (pair_count > in.left() / 14)
        fail("{}: the header claims {} metadata keys, more than a file of {} bytes can hold", source,
             pair_count, bytes.size());
    if (tensor_count > in.left() / 33)
        fail("{}: the header claims {} tensors, more than a file of {} bytes can hold", source, tensor_count,
             bytes.size());

    out.metadata.source = source;
    MetadataReader metadata(in, source, out.metadata);
    for (std::uint64_t i = 0; i < pair_count; ++i) metadata.read_pair();
    const std::uint64_t alignment = read_alignment(out.metadata, source);

    std::vector<Placed> placed;
    placed.reserve(static_cast<std::size_t>(tensor_count));
    std::unordered_set<std::string_view> names;
    names.reserve(static_cast<std::size_t>(tensor_count));
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
        placed.push_back(read_tensor_info(in, source, alignment));
        if (!names.insert(placed.back().tensor.name).second)
            fail("{}: two tensors are named '{}'", source, printable(placed.back().tensor.name));
    }

    // The data section begins at the next multiple of the alignment. A file
    // without tensors may end before it.
    const std::uint64_t start = (in.position() + alignment - 1) / alignment * alignment;
    const std::span<const std::byte> data =
        start < bytes.size() ? bytes.subspan(static_cast<std::size_t>(start)) : std::span<const std::byte>();
    place_tensors(placed, data, source);
    out.tensors.reserve(out.tensors.size() + placed.size());
    for (Placed& p : placed) {
        p.tensor.data = data.subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.size));
        p.tensor.file = file;
        out.tensors.push_back(std::move(p.tensor));
    }
}

void parse_gguf(std::span<const std::byte> bytes, const std::string& source, ModelFile& out) {
    out.format = ModelFormat::gguf;
    if (out.path.empty()) out.path = source;
    append_gguf(bytes, source, nullptr, out);
    out.index_names();
}

}  // namespace forge
