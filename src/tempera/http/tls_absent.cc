// In place of tls.cc where the system has no OpenSSL.
#include "tempera/base/error.h"
#include "tempera/http/tls.h"

namespace tempera::http {

struct TlsSession::State {};
struct TlsContext::State {};

TlsSession::TlsSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSession::~TlsSession() = default;
TlsStep TlsSession::shake_hands() { return TlsStep::kEnded; }
TlsStep TlsSession::read(char*, size_t, size_t&) { return TlsStep::kEnded; }
TlsStep TlsSession::write(const char*, size_t, size_t&) { return TlsStep::kEnded; }
bool TlsSession::has_more() const { return false; }
void TlsSession::say_end() {}

TlsContext::TlsContext(const std::string& certificate, const std::string& /*key*/) {
  throw Error(concat("certificate: ", certificate,
                     " given, and this build cannot encrypt: install OpenSSL's headers "
                     "(libssl-dev) and build again, or put a proxy with TLS in front"));
}
TlsContext::~TlsContext() = default;
std::unique_ptr<TlsSession> TlsContext::session(int) const { return nullptr; }

}  // namespace tempera::http
