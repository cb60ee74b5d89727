// The version of the library, and the names of its error codes.
#include "moeflux/moeflux.h"

uint32_t mf_version() noexcept { return MF_VERSION; }

const char* mf_version_string() noexcept { return MOEFLUX_VERSION; }

const char* mf_code_name(mf_code code) noexcept {
  switch (code) {
    case MF_OK:
      return "ok";
    case MF_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case MF_ERROR_NOT_FOUND:
      return "not found";
    case MF_ERROR_CORRUPTION:
      return "corruption";
    case MF_ERROR_UNSUPPORTED:
      return "unsupported";
    case MF_ERROR_RESOURCE_EXHAUSTED:
      return "resource exhausted";
    case MF_ERROR_IO:
      return "input or output";
    case MF_ERROR_CANCELLED:
      return "cancelled";
    case MF_ERROR_FAILED_PRECONDITION:
      return "failed precondition";
    case MF_ERROR_BUFFER_TOO_SMALL:
      return "buffer too small";
    case MF_ERROR_BUSY:
      return "busy";
  }
  return "unknown";
}
