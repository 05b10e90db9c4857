/* In place of Windows' icuuc.dll, which Wine lacks and Qt loads: each character set is "not supported". */
#include <stddef.h>

#define API __declspec(dllexport)
#define UNSUPPORTED 16 /* U_UNSUPPORTED_ERROR */
#define NOTHING(name) API void name(void) {}

API void *ucnv_open(const char *name, int *error) { *error = UNSUPPORTED; return NULL; }
API const char *ucnv_getName(const void *converter, int *error) { *error = UNSUPPORTED; return NULL; }
API const char *ucnv_getStandardName(const char *name, const char *standard, int *error) { *error = UNSUPPORTED; return NULL; }
API const char *ucnv_getAvailableName(int index) { return NULL; }
API int ucnv_countAvailable(void) { return 0; }
API int ucnv_fromUCountPending(const void *converter, int *error) { return 0; }
API int ucnv_toUCountPending(const void *converter, int *error) { return 0; }
API signed char ucnv_getMaxCharSize(const void *converter) { return 1; }
NOTHING(ucnv_close) NOTHING(ucnv_reset) NOTHING(ucnv_fromUnicode) NOTHING(ucnv_toUnicode)
NOTHING(ucnv_cbFromUWriteUChars) NOTHING(ucnv_cbToUWriteUChars)
NOTHING(ucnv_getFromUCallBack) NOTHING(ucnv_getToUCallBack) NOTHING(ucnv_setFromUCallBack) NOTHING(ucnv_setToUCallBack)
