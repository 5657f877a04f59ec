// Any bytes are a safetensors file or an Error; the tensors cover the buffer.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "formats/model_file.h"

namespace {

using namespace forge;

void parse(std::span<const std::uint8_t> bytes) {
    ModelFile model;
    try {
        parse_safetensors(std::as_bytes(bytes), "fuzz", model);
    } catch (const Error&) {
        return;
    }
    unsigned sum = 0;
    for (const Tensor& tensor : model.tensors) {
        for (std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
        if (tensor.describe().empty() || model.find(tensor.name) != &tensor) std::abort();
        if (static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype) != tensor.data.size())
            std::abort();
    }
    [[maybe_unused]] static volatile unsigned sink;
    sink = sum;
    std::uint64_t header;
    std::memcpy(&header, bytes.data(), 8);
    if (model.tensor_bytes() + header + 8 != bytes.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    parse({data, size});
    // The eight bytes of length are hard to keep right by mutation: put them
    // there, for a header that ends at the last closing brace.
    std::size_t header = size;
    while (header > 0 && data[header - 1] != '}') --header;
    if (header == 0) return 0;
    std::vector<std::uint8_t> whole(8 + size);
    const std::uint64_t length = header;
    std::memcpy(whole.data(), &length, 8);
    std::memcpy(whole.data() + 8, data, size);
    parse(whole);
    return 0;
}
