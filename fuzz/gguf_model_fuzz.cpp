// The head of a GGUF file (metadata and tensor table; the data are zeros that the target adds)
// -> tokenizer, descriptor and bound weights, or an Error.
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/model_file.h"
#include "model/bind.h"
#include "tokenizer_fuzz.h"

namespace {

constexpr std::size_t kDataBytes = 512 << 10;  // the models of tests/data have at most this much

template <typename Body>
void refused_at_most(const Body& body) {
    try {
        body();
    } catch (const forge::Error& error) {
        if (error.kind() == forge::ErrorKind::internal) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static forge::ThreadPool pool(1);
    forge::set_log_level(forge::LogLevel::error);
    std::vector<std::byte> bytes(size + kDataBytes);
    std::memcpy(bytes.data(), data, size);
    forge::ModelFile file;
    file.path = "fuzz";
    refused_at_most([&] { forge::parse_gguf(bytes, "fuzz", file); });
    if (file.metadata.all().empty()) return 0;
    refused_at_most(
        [&] { forge::fuzz::use(forge::Tokenizer::from_gguf(file.metadata), "Hello  w\n 12\xE2\x96\x81"); });
    refused_at_most([&] { forge::bind_model(file, pool); });
    return 0;
}
