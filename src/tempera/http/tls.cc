#include "tempera/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <cstring>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::http {
namespace {

std::string last_reason() {
  const unsigned long code = ::ERR_peek_error();
  ::ERR_clear_error();
  if (ERR_SYSTEM_ERROR(code)) return std::strerror(ERR_GET_REASON(code));
  const char* const reason = ::ERR_reason_error_string(code);
  return reason ? reason : "no reason given";
}

// OpenSSL writes to sockets without a way to leave the signal out.
void block_broken_pipe() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

struct TlsSession::State {
  std::unique_ptr<SSL, decltype(&::SSL_free)> ssl{nullptr, ::SSL_free};
  bool ended = false;  // nothing may be written any more

  TlsStep step(int result) {
    if (result > 0) return TlsStep::kDone;
    switch (::SSL_get_error(ssl.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return TlsStep::kWantsRead;
      case SSL_ERROR_WANT_WRITE:
        return TlsStep::kWantsWrite;
      case SSL_ERROR_ZERO_RETURN:
        return TlsStep::kEnded;
      default:
        ended = true;
        ::ERR_clear_error();
        return TlsStep::kEnded;
    }
  }
};

TlsSession::TlsSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSession::~TlsSession() = default;

TlsStep TlsSession::shake_hands() {
  block_broken_pipe();
  ::ERR_clear_error();
  return state_->step(::SSL_accept(state_->ssl.get()));
}

TlsStep TlsSession::read(char* to, size_t size, size_t& done) {
  ::ERR_clear_error();
  return state_->step(::SSL_read_ex(state_->ssl.get(), to, size, &done));
}

TlsStep TlsSession::write(const char* from, size_t size, size_t& done) {
  ::ERR_clear_error();
  return state_->step(::SSL_write_ex(state_->ssl.get(), from, size, &done));
}

// A part of a record, which SSL_has_pending() would count, gives nothing until the rest comes.
bool TlsSession::has_more() const { return ::SSL_pending(state_->ssl.get()) > 0; }

void TlsSession::say_end() {
  if (std::exchange(state_->ended, true)) return;
  ::ERR_clear_error();
  ::SSL_shutdown(state_->ssl.get());
  ::ERR_clear_error();
}

struct TlsContext::State {
  std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context{::SSL_CTX_new(::TLS_server_method()),
                                                              ::SSL_CTX_free};
};

TlsContext::TlsContext(const std::string& certificate, const std::string& key)
    : state_(std::make_unique<State>()) {
  SSL_CTX* const context = state_->context.get();
  TEMPERA_CHECK(context, "OpenSSL does not start: ", last_reason());
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
  TEMPERA_CHECK(::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) == 1,
                "certificate: ", certificate, " is not read: ", last_reason(),
                "; a file in PEM expected");
  TEMPERA_CHECK(::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) == 1,
                "key: ", key, " is not taken: ", last_reason(),
                "; the certificate's private key as a file in PEM, without a password, expected");
}

TlsContext::~TlsContext() = default;

std::unique_ptr<TlsSession> TlsContext::session(int descriptor) const {
  auto state = std::make_unique<TlsSession::State>();
  state->ssl.reset(::SSL_new(state_->context.get()));
  TEMPERA_CHECK(state->ssl && ::SSL_set_fd(state->ssl.get(), descriptor) == 1,
                "OpenSSL takes no connection: ", last_reason());
  return std::make_unique<TlsSession>(std::move(state));
}

}  // namespace tempera::http
