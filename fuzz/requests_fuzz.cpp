// Any bytes as the body of a request, for each protocol: an ApiError or a request, nothing else.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "anthropic.h"
#include "embeddings.h"
#include "infill.h"
#include "ollama.h"
#include "openai.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace forge::server;
    if (size == 0) return 0;
    const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
    try {
        const Json json = parse_object(body);
        switch (data[0] % 8) {
            case 0: openai_chat(json); break;
            case 1: openai_completion(json); break;
            case 2: openai_response(json); break;
            case 3: anthropic_messages(json); break;
            case 4: ollama_chat(json); break;
            case 5: ollama_generate(json); break;
            case 6: infill(json); break;
            default: {
                EmbeddingRequest request;
                Fields fields(json);
                read_input(fields, request);
            }
        }
    } catch (const ApiError&) {
    }
    return 0;
}
