/* The complex numbers of C99, which Wine's ucrtbase.dll lacks and numpy and scipy need.

   windows_check.py puts these functions into a ucrtbase.dll that passes every other call on to Wine's own. A long double
   of Windows is a double, so the "l" functions are these as well. Structures, because Windows passes them like that. */
#include <complex.h>

typedef struct { float re, im; } F;
typedef struct { double re, im; } D;
static float complex from_f(F z) { return __builtin_complex(z.re, z.im); }
static double complex from_d(D z) { return __builtin_complex(z.re, z.im); }
static F to_f(float complex z) { return (F){crealf(z), cimagf(z)}; }
static D to_d(double complex z) { return (D){creal(z), cimag(z)}; }

#define COMPLEX(name) \
  F h_##name##f(F z) { return to_f(name##f(from_f(z))); } \
  D h_##name(D z) { return to_d(name(from_d(z))); }
#define REAL(name) \
  float h_##name##f(F z) { return name##f(from_f(z)); } \
  double h_##name(D z) { return name(from_d(z)); }

COMPLEX(cacos) COMPLEX(cacosh) COMPLEX(casin) COMPLEX(casinh) COMPLEX(catan) COMPLEX(catanh) COMPLEX(ccos)
COMPLEX(ccosh) COMPLEX(cexp) COMPLEX(clog) COMPLEX(conj) COMPLEX(cproj) COMPLEX(csin) COMPLEX(csinh) COMPLEX(csqrt)
COMPLEX(ctan) COMPLEX(ctanh)
REAL(cabs) REAL(carg) REAL(creal) REAL(cimag)

#define LOG10_E 0.43429448190325182765
F h_clog10f(F z) { return to_f(clogf(from_f(z)) * (float)LOG10_E); }
D h_clog10(D z) { return to_d(clog(from_d(z)) * LOG10_E); }
float h_normf(F z) { return z.re * z.re + z.im * z.im; }
double h_norm(D z) { return z.re * z.re + z.im * z.im; }
F h_cpowf(F a, F b) { return to_f(cpowf(from_f(a), from_f(b))); }
D h_cpow(D a, D b) { return to_d(cpow(from_d(a), from_d(b))); }
F h__FCbuild(float re, float im) { return (F){re, im}; }
D h__Cbuild(double re, double im) { return (D){re, im}; }
D h__LCbuild(double re, double im) { return (D){re, im}; }
F h__FCmulcc(F a, F b) { return to_f(from_f(a) * from_f(b)); }
D h__Cmulcc(D a, D b) { return to_d(from_d(a) * from_d(b)); }
D h__LCmulcc(D a, D b) { return h__Cmulcc(a, b); }
F h__FCmulcr(F a, float b) { return (F){a.re * b, a.im * b}; }
D h__Cmulcr(D a, double b) { return (D){a.re * b, a.im * b}; }
D h__LCmulcr(D a, double b) { return h__Cmulcr(a, b); }
