import Small.Logic
import Small.Numbers
