// Stands in where libcurl or libcrypto was missing when Forge was built.
#include "base/error.h"
#include "transport/remote_digest.h"
#include "transport/http.h"

namespace forge {

struct Hasher::Impl {};
Hasher::Hasher(Kind) { require_transport(); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
void Hasher::update(std::span<const std::byte>) {}
std::string Hasher::hex() { return ""; }

}  // namespace forge
