"""How numba compiles kernels, and the functions that they inline: those to LLVM code and no further.

By itself, numba optimises each function and translates it to machine code with all that it calls, though a kernel that
inlines it is optimised and translated as a whole again. That was a fifth to a third of the time to compile a kernel.
"""

from __future__ import annotations

from typing import Any

from numba.core import typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

# For closures, `with`, exceptions, literal_unroll, overloads to inline and array expressions: kernels have none. These
# passes walk through all code and change nothing; without them, numba takes 6 % less time.
_NOT_NEEDED = (
    untyped_passes.WithLifting,
    untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.InlineOverloads,
    typed_passes.NopythonRewrites,
    typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.DumpParforDiagnostics,
)


class KernelCompiler(Compiler):  # type: ignore[misc]
    """numba's compiler (`pipeline_class`) without the passes that kernels do not need."""

    def define_pipelines(self) -> list[Any]:
        pipelines: list[Any] = super().define_pipelines()
        for one in pipelines:
            one.passes = [each for each in one.passes if each[0] not in _NOT_NEEDED]
            one.finalize()
        return pipelines


class _NoEnvironment:
    """In place of numba's code generator, which would set an address in the machine code of a Python function."""

    @staticmethod
    def set_env(name: str, environment: object) -> None:
        """Do nothing: kernels do not use Python objects."""


class _InlinedCode(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a function, to be linked into kernels. It has no machine code."""

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> type[_NoEnvironment]:
        return _NoEnvironment

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class InlinedCompiler(KernelCompiler):
    """numba's compiler (`pipeline_class`) for functions that only kernels call."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, returned: Any, flags: Any, locals: Any
    ) -> None:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        code = _InlinedCode(target.codegen(), "inlined")
        super().__init__(typing, target, code, args, returned, flags, locals)
