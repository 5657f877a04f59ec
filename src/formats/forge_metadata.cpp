#include "formats/forge_metadata.h"

#include "forge_bytes.h"
#include "text.h"

namespace forge {
namespace {

constexpr std::string_view pairs_magic = "FORGEKV1", tensors_magic = "FORGETL1";

void magic(ByteReader& in, std::string_view wanted, const std::string& source) {
    if (in.left() < wanted.size() || in.text(wanted.size(), "its first bytes") != wanted)
        fail("{}: the data should begin with {}", source, wanted);
}

// Types have the number of their alternative in MetaValue.
class ValueWriter {
  public:
    explicit ValueWriter(ByteWriter& out) : out_(out) {}
    void operator()(bool v) { out_.number<std::uint8_t>(v); }
    void operator()(std::int64_t v) { out_.number(v); }
    void operator()(std::uint64_t v) { out_.number(v); }
    void operator()(double v) { out_.number(v); }
    void operator()(const std::string& v) {
        out_.number<std::uint64_t>(v.size());
        out_.raw(v);
    }
    void operator()(const std::vector<bool>& v) {
        out_.number<std::uint64_t>(v.size());
        for (const bool b : v) out_.number<std::uint8_t>(b);
    }
    template <typename T>
    void operator()(const std::vector<T>& v) {
        out_.number<std::uint64_t>(v.size());
        out_.raw(std::as_bytes(std::span(v)));
    }
    void operator()(const std::vector<std::string>& v) {
        out_.number<std::uint64_t>(v.size());
        for (const std::string& s : v) out_.number(static_cast<std::uint32_t>(s.size()));
        for (const std::string& s : v) out_.raw(s);
    }

  private:
    ByteWriter& out_;
};

bool read_bool(ByteReader& in, const std::string& source) {
    const auto value = in.number<std::uint8_t>("a boolean");
    if (value > 1) fail("{}: a boolean has the value {}", source, value);
    return value == 1;
}

template <typename T>
std::vector<T> read_numbers(ByteReader& in) {
    const std::size_t count = in.count(in.number<std::uint64_t>("an array"), sizeof(T), "the elements of an array");
    std::vector<T> out(count);
    const auto bytes = in.raw(count * sizeof(T), "an array");
    if (count > 0) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

MetaValue read_value(ByteReader& in, std::uint8_t type, const std::string& source) {
    switch (type) {
        case 0: return read_bool(in, source);
        case 1: return in.number<std::int64_t>("an integer");
        case 2: return in.number<std::uint64_t>("an integer");
        case 3: return in.number<double>("a number");
        case 4: return std::string(in.text(in.number<std::uint64_t>("a text"), "a text"));
        case 5: {
            std::vector<bool> out(in.count(in.number<std::uint64_t>("an array"), 1, "the elements of an array"));
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = read_bool(in, source);
            return out;
        }
        case 6: return read_numbers<std::int64_t>(in);
        case 7: return read_numbers<double>(in);
        case 8: {
            const std::size_t count = in.count(in.number<std::uint64_t>("an array"), 4, "the texts of an array");
            const auto lengths = in.raw(count * 4, "the lengths of texts");
            std::vector<std::string> out;
            out.reserve(count);
            for (std::size_t i = 0; i < count; ++i) {
                std::uint32_t length;
                std::memcpy(&length, lengths.data() + 4 * i, 4);
                out.emplace_back(in.text(length, "a text of an array"));
            }
            return out;
        }
        default: fail("{}: a value has the type {}, which this version does not know", source, type);
    }
}

}  // namespace

std::string encode_pairs(const Metadata& metadata, const std::function<bool(std::string_view)>& wanted) {
    std::uint32_t count = 0;
    for (const auto& [key, value] : metadata.all()) count += wanted(key) ? 1 : 0;
    ByteWriter out;
    out.raw(pairs_magic);
    out.number(count);
    for (const auto& [key, value] : metadata.all()) {
        if (!wanted(key)) continue;
        out.number(static_cast<std::uint32_t>(key.size()));
        out.raw(key);
        out.number(static_cast<std::uint8_t>(value.index()));
        std::visit(ValueWriter(out), value);
    }
    return out.take();
}

void decode_pairs(std::span<const std::byte> bytes, const std::string& source, Metadata& out) {
    ByteReader in(bytes, source);
    magic(in, pairs_magic, source);
    const std::size_t count = in.count(in.number<std::uint32_t>("the number of pairs"), 6, "the pairs");
    for (std::size_t i = 0; i < count; ++i) {
        std::string key(in.text(in.number<std::uint32_t>("a key"), "a key"));
        if (out.has(key)) fail("{}: the key '{}' appears twice", source, printable(key));
        const auto type = in.number<std::uint8_t>("the type of a value");
        out.set(std::move(key), read_value(in, type, source));
    }
    in.finished();
}

std::string encode_tensor_list(std::span<const Tensor> tensors, const std::function<bool(const Tensor&)>& keep) {
    ByteWriter out;
    out.raw(tensors_magic);
    out.number(static_cast<std::uint32_t>(tensors.size()));
    for (const Tensor& tensor : tensors) {
        out.number(static_cast<std::uint16_t>(tensor.name.size()));
        out.raw(tensor.name);
        out.number<std::uint8_t>(tensor.is_block);
        out.number(tensor.is_block ? static_cast<std::uint32_t>(tensor.block) : static_cast<std::uint32_t>(tensor.dtype));
        out.number(static_cast<std::uint8_t>(tensor.shape.size()));
        for (const std::int64_t dim : tensor.shape) out.number(dim);
        const bool kept = keep(tensor);
        out.number<std::uint64_t>(kept ? tensor.data.size() : 0);
        if (kept) out.raw(tensor.data);
    }
    return out.take();
}

std::vector<Tensor> decode_tensor_list(std::span<const std::byte> bytes, const std::string& source) {
    ByteReader in(bytes, source);
    magic(in, tensors_magic, source);
    const std::size_t count = in.count(in.number<std::uint32_t>("the number of tensors"), 16, "the tensors");
    std::vector<Tensor> out;
    out.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        Tensor tensor;
        tensor.name = in.text(in.number<std::uint16_t>("a tensor's name"), "a tensor's name");
        const auto kind = in.number<std::uint8_t>("a tensor's type");
        const auto type = in.number<std::uint32_t>("a tensor's type");
        tensor.is_block = kind == 1;
        const bool known = kind == 1 ? gguf_block_size(type).has_value() : kind == 0 && type <= static_cast<std::uint32_t>(DType::f8_e5m2);
        if (!known) fail("{}: tensor '{}' has a type ({}, {}) that this version does not know", source, printable(tensor.name), kind, type);
        if (tensor.is_block) tensor.block = static_cast<GgufType>(type);
        else tensor.dtype = static_cast<DType>(type);
        const auto dims = in.number<std::uint8_t>("a tensor's shape");
        std::uint64_t elements = 1;
        for (int d = 0; d < dims; ++d) {
            const auto dim = in.number<std::int64_t>("a tensor's shape");
            if (dim < 0 || (dim > 0 && elements > (std::uint64_t{1} << 48) / static_cast<std::uint64_t>(dim)))
                fail("{}: tensor '{}' has an impossible shape", source, printable(tensor.name));
            elements *= static_cast<std::uint64_t>(dim);
            tensor.shape.push_back(dim);
        }
        tensor.data = in.raw(in.number<std::uint64_t>("a tensor's size"), "a tensor's data");
        out.push_back(std::move(tensor));
    }
    in.finished();
    return out;
}

}  // namespace forge
