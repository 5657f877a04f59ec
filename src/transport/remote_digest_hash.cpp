// The digests themselves, from the system's library.
#include "transport/remote_digest.h"

#ifdef __APPLE__
#include <CommonCrypto/CommonDigest.h>
#else
#include <openssl/evp.h>
#endif

#include <algorithm>
#include <array>

#include "base/error.h"

namespace forge {
namespace {

std::string to_hex(std::span<const unsigned char> bytes) {
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

}  // namespace

#ifdef __APPLE__

struct Hasher::Impl {
    Kind kind;
    CC_SHA256_CTX sha256;
    CC_SHA1_CTX sha1;
};

Hasher::Hasher(Kind kind) : impl_(std::make_unique<Impl>()) {
    impl_->kind = kind;
    kind == Kind::sha256 ? CC_SHA256_Init(&impl_->sha256) : CC_SHA1_Init(&impl_->sha1);
}

void Hasher::update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
        const auto size = static_cast<CC_LONG>(piece.size());
        impl_->kind == Kind::sha256 ? CC_SHA256_Update(&impl_->sha256, piece.data(), size) : CC_SHA1_Update(&impl_->sha1, piece.data(), size);
        bytes = bytes.subspan(piece.size());
    }
}

std::string Hasher::hex() {
    std::array<unsigned char, 32> out{};
    if (impl_->kind == Kind::sha256) {
        CC_SHA256_Final(out.data(), &impl_->sha256);
        return to_hex(out);
    }
    CC_SHA1_Final(out.data(), &impl_->sha1);
    return to_hex(std::span(out).first(20));
}

#else

struct Hasher::Impl {
    EVP_MD_CTX* context = nullptr;
    ~Impl() { EVP_MD_CTX_free(context); }
};

Hasher::Hasher(Kind kind) : impl_(std::make_unique<Impl>()) {
    impl_->context = EVP_MD_CTX_new();
    if (!impl_->context || EVP_DigestInit_ex(impl_->context, kind == Kind::sha256 ? EVP_sha256() : EVP_sha1(), nullptr) != 1)
        fail(ErrorKind::unsupported, "libcrypto does not offer {} on this machine", kind == Kind::sha256 ? "SHA-256" : "SHA-1");
}

void Hasher::update(std::span<const std::byte> bytes) { EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()); }

std::string Hasher::hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(impl_->context, out.data(), &size);
    return to_hex(std::span(out).first(size));
}

#endif

Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

}  // namespace forge
