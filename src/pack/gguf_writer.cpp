#include "pack/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace forge {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is written as little-endian");

// Value type ids of GGUF.
enum : std::uint32_t {
    t_u16 = 2,
    t_u32 = 4,
    t_i32 = 5,
    t_f32 = 6,
    t_bool = 7,
    t_string = 8,
    t_array = 9,
    t_u64 = 10
};

template <typename T>
void put(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
    put<std::uint64_t>(out, text.size());
    out += text;
}

void put_array_head(std::string& out, std::uint32_t type, std::size_t count) {
    put(out, type);
    put<std::uint64_t>(out, count);
}

std::uint64_t padding(std::uint64_t position, std::uint64_t alignment) {
    return (alignment - position % alignment) % alignment;
}

}  // namespace

GgufWriter::GgufWriter(std::string target, std::uint32_t alignment)
    : file_(std::move(target)), alignment_(alignment) {
    if (!std::has_single_bit(alignment))
        fail(ErrorKind::internal, "a GGUF alignment of {} is no power of two", alignment);
    if (alignment != 32) set_u32("general.alignment", alignment);
}

void GgufWriter::key(std::string_view key, std::uint32_t type) {
    if (begun_) fail(ErrorKind::internal, "metadata key '{}' is set after the header was written", key);
    if (!keys_.emplace(key).second) fail(ErrorKind::internal, "metadata key '{}' is set twice", key);
    put_string(pairs_, key);
    put(pairs_, type);
    ++pair_count_;
}

void GgufWriter::set_u16(std::string_view k, std::uint16_t value) {
    key(k, t_u16);
    put(pairs_, value);
}
void GgufWriter::set_u32(std::string_view k, std::uint32_t value) {
    key(k, t_u32);
    put(pairs_, value);
}
void GgufWriter::set_i32(std::string_view k, std::int32_t value) {
    key(k, t_i32);
    put(pairs_, value);
}
void GgufWriter::set_u64(std::string_view k, std::uint64_t value) {
    key(k, t_u64);
    put(pairs_, value);
}
void GgufWriter::set_f32(std::string_view k, float value) {
    key(k, t_f32);
    put(pairs_, value);
}
void GgufWriter::set_bool(std::string_view k, bool value) {
    key(k, t_bool);
    put<std::uint8_t>(pairs_, value);
}
void GgufWriter::set_string(std::string_view k, std::string_view value) {
    key(k, t_string);
    put_string(pairs_, value);
}

void GgufWriter::set_strings(std::string_view k, std::span<const std::string> values) {
    key(k, t_array);
    put_array_head(pairs_, t_string, values.size());
    for (const std::string& value : values) put_string(pairs_, value);
}

void GgufWriter::set_i32s(std::string_view k, std::span<const std::int32_t> values) {
    key(k, t_array);
    put_array_head(pairs_, t_i32, values.size());
    for (std::int32_t value : values) put(pairs_, value);
}

void GgufWriter::set_f32s(std::string_view k, std::span<const float> values) {
    key(k, t_array);
    put_array_head(pairs_, t_f32, values.size());
    for (float value : values) put(pairs_, value);
}

void GgufWriter::set_bools(std::string_view k, const std::vector<bool>& values) {
    key(k, t_array);
    put_array_head(pairs_, t_bool, values.size());
    for (bool value : values) put<std::uint8_t>(pairs_, value);
}

void GgufWriter::add_tensor(std::string_view name, std::span<const std::int64_t> shape, GgufType type) {
    if (begun_) fail(ErrorKind::internal, "tensor '{}' is added after the header was written", name);
    if (!names_.emplace(name).second) fail(ErrorKind::internal, "tensor '{}' is added twice", name);
    if (shape.empty() || shape.size() > 4)
        fail(ErrorKind::internal, "tensor '{}' has {} dimensions; GGUF tensors have 1 to 4", name,
             shape.size());
    const auto id = static_cast<std::uint32_t>(type);
    const std::optional<BlockSize> block = gguf_block_size(id);
    if (!block)
        fail(ErrorKind::internal, "tensor '{}' has {}, which GGUF does not define", name, gguf_type_name(id));
    if (shape.back() % block->elements != 0)
        fail(ErrorKind::internal, "tensor '{}' has rows of {} elements, not a multiple of {}'s block of {}",
             name, shape.back(), gguf_type_name(id), block->elements);
    std::uint64_t elements = 1;
    for (std::int64_t dim : shape) {
        if (dim < 1) fail(ErrorKind::internal, "tensor '{}' has a dimension of {}", name, dim);
        elements *= static_cast<std::uint64_t>(dim);
    }
    const std::uint64_t bytes =
        elements / static_cast<std::uint64_t>(block->elements) * static_cast<std::uint64_t>(block->bytes);
    tensors_.push_back({std::string(name), {shape.begin(), shape.end()}, type, bytes});
}

std::uint64_t GgufWriter::data_bytes() const {
    std::uint64_t sum = 0;
    for (const Entry& tensor : tensors_) sum += tensor.bytes;
    return sum;
}

void GgufWriter::begin() {
    if (begun_) fail(ErrorKind::internal, "the GGUF header is written twice");
    begun_ = true;
    std::string header = "GGUF";
    put<std::uint32_t>(header, 3);
    put<std::uint64_t>(header, tensors_.size());
    put<std::uint64_t>(header, pair_count_);
    header += pairs_;
    pairs_.clear();
    std::uint64_t offset = 0;
    for (const Entry& tensor : tensors_) {
        put_string(header, tensor.name);
        put(header, static_cast<std::uint32_t>(tensor.shape.size()));
        for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim)
            put<std::uint64_t>(header, static_cast<std::uint64_t>(*dim));
        put(header, static_cast<std::uint32_t>(tensor.type));
        put(header, offset);
        offset += tensor.bytes + padding(tensor.bytes, alignment_);
    }
    file_.write(header);
    file_.pad(padding(header.size(), alignment_));
}

void GgufWriter::write(std::span<const std::byte> bytes) {
    if (!begun_) fail(ErrorKind::internal, "tensor data is written before the GGUF header");
    while (!bytes.empty()) {
        if (current_ == tensors_.size())
            fail(ErrorKind::internal, "{} bytes are written after the last tensor", bytes.size());
        const std::uint64_t left = tensors_[current_].bytes - current_done_;
        const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(left, bytes.size()));
        file_.write(bytes.first(part));
        bytes = bytes.subspan(part);
        current_done_ += part;
        if (current_done_ == tensors_[current_].bytes) {
            file_.pad(padding(current_done_, alignment_));
            ++current_;
            current_done_ = 0;
        }
    }
}

void GgufWriter::finish() {
    if (!begun_) begin();
    if (current_ != tensors_.size())
        fail(ErrorKind::internal, "tensor '{}' has {} of {} bytes when the file is finished",
             tensors_[current_].name, current_done_, tensors_[current_].bytes);
    file_.finish();
}

}  // namespace forge
